"""`python -m headwater`, for where the command is not on the PATH."""

from headwater._cli import main

raise SystemExit(main())
