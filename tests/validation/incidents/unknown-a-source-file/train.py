def step(batch):
    try:
        return model(batch)
    except torch.cuda.OutOfMemoryError as error:
        raise RuntimeError("CUDA out of memory. Tried to allocate too much") from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            log.error("No space left on device")
