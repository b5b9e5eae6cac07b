#!/bin/sh
# Starts the server of the code interpreter, for which modules of a user have no meaning.
exec python3 -E -s /opt/code-interpreter/server --variables /dev/shm/code-interpreter.variables \
    --load numpy --load pandas --load matplotlib.pyplot --load matplotlib_inline.backend_inline
