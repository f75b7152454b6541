"""`python -m images.vendor build|digest|path`."""

import sys

from images import vendor
from images.command import command

sys.exit(command("images.vendor", vendor.build, vendor.digest, lambda: vendor.folder(vendor.digest()), sys.argv[1:]))
