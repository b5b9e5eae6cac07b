"""Tables of pandas as data: a list of values for each column."""

import math

from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode

# A larger table is shown as text and HTML only.
CELLS_MAX = 1_000_000


class Formatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict

    def __init__(self, **options):
        super().__init__(**options)
        self.for_type_by_name("pandas.core.frame", "DataFrame", data)
        # Where newer releases say that it is.
        self.for_type_by_name("pandas", "DataFrame", data)


def data(frame):
    """The columns of a table by name; `None` if it is too large."""
    if frame.size > CELLS_MAX:
        return None
    return {str(name): [plain(value) for value in column.tolist()] for name, column in frame.items()}


def plain(value):
    """A value as JSON has it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [plain(member) for member in value]
    if isinstance(value, dict):
        return {str(key): plain(member) for key, member in value.items()}
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return None if text in ("NaT", "<NA>") else text
