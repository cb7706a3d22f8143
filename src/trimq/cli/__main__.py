"""`python -m trimq.cli`: runs the command without its installed script."""

import sys

from trimq.cli.main import main

sys.exit(main())
