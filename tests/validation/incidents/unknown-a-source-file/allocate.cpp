void* allocate(size_t bytes) {
  void* pointer = nullptr;
  if (cudaMalloc(&pointer, bytes) != cudaSuccess) {
    throw std::runtime_error("CUDA out of memory. Tried to allocate " + std::to_string(bytes));
  }
  return pointer;
}
void write(const std::string& path) {
  if (errno == ENOSPC) LOG(ERROR) << "No space left on device";
}
