"""Figures of matplotlib as data.

The data of an axis is that of its first kind in this order: pie, boxes, bars, lines, points. A figure with several axes
is a chart of charts. Boxes are noted when they are drawn, since their quartiles are not in the figure.
"""

import functools
import math
import re

from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode

from . import imports

# Figures with more points are pictures only.
POINTS_MAX = 100_000
# A unit at the end of a label: `Time (s)`, `Speed [m/s]`.
UNIT = re.compile(r"[(\[]([^()\[\]]+)[)\]]\s*$")
# Where the boxes of an axis are noted.
BOXES = "_code_interpreter_boxes"


class Formatter(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict


def watch_imports():
    # A method, since matplotlib removes the functions that formatters have for its figures.
    imports.after("matplotlib.figure", lambda module: setattr(module.Figure, "_repr_e2b_chart_", chart))
    imports.after("matplotlib.axes._axes", _note_boxes)


def chart(figure):
    """The data of a figure; `None` if it has no axes, or too much data."""
    axes = [axis for axis in figure.axes if axis.get_visible() and axis.get_label() != "<colorbar>"]
    if not axes or sum(map(_points_of, axes)) > POINTS_MAX:
        return None
    title = figure.get_suptitle() or None
    charts = [_of_axes(axis) for axis in axes]
    if len(charts) == 1:
        return {**charts[0], "title": charts[0]["title"] or title}
    return {"type": "superchart", "title": title, "elements": charts}


def _of_axes(axes):
    from matplotlib.patches import Wedge

    title = axes.get_title() or axes.get_title("left") or axes.get_title("right") or None
    wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
    boxes = _boxes_of(axes)
    bars = [container for container in axes.containers if hasattr(container, "orientation") and container.patches]
    lines, points = _lines_of(axes), _points_sets_of(axes)
    if wedges:
        return {"type": "pie", "title": title, "elements": [_slice(wedge) for wedge in wedges]}
    if boxes:
        return {"type": "box_and_whisker", "title": title, **_labels(axes), "elements": boxes}
    if bars:
        elements = [bar for container in bars for bar in _bars(axes, container)]
        return {"type": "bar", "title": title, **_labels(axes), "elements": elements}
    if lines or points:
        x, y = Scale(axes.xaxis), Scale(axes.yaxis)
        sets = [_set(line, line.get_xdata(orig=False), line.get_ydata(orig=False), x, y) for line in lines]
        if not lines:
            sets = [_set(group, *zip(*group.get_offsets().tolist()), x, y) for group in points]
        kind = "line" if any(line.get_linestyle() != "None" for line in lines) else "scatter"
        return {"type": kind, "title": title, **_labels(axes), **x.shown("x"), **y.shown("y"), "elements": sets}
    return {"type": "unknown", "title": title, "elements": []}


def _lines_of(axes):
    """The lines with data; a line across the whole axis has none."""
    return [line for line in axes.lines if line.get_transform() == axes.transData and len(line.get_xdata())]


def _points_sets_of(axes):
    from matplotlib.collections import PathCollection

    return [group for group in axes.collections if isinstance(group, PathCollection) and len(group.get_offsets())]


def _points_of(axes):
    lines = sum(len(line.get_xdata()) for line in axes.lines)
    return lines + sum(len(group.get_offsets()) for group in _points_sets_of(axes)) + len(axes.patches)


def _labels(axes):
    x, y = axes.get_xlabel() or None, axes.get_ylabel() or None
    return {"x_label": x, "y_label": y, "x_unit": _unit(x), "y_unit": _unit(y)}


def _unit(label):
    found = UNIT.search(label or "")
    return found[1].strip() if found else None


def _name(artist):
    """The label of an artist; matplotlib gives those without one a label that begins with `_`."""
    label = str(artist.get_label() or "")
    return "" if label.startswith("_") else label


def _number(value):
    value = float(value)
    return value if math.isfinite(value) else None


def _set(artist, xs, ys, x, y):
    return {"label": _name(artist), "points": [(x.value(one), y.value(other)) for one, other in zip(xs, ys)]}


def _slice(wedge):
    return {"label": _name(wedge), "angle": round(wedge.theta2 - wedge.theta1, 4), "radius": _number(wedge.r)}


def _bars(axes, container):
    is_horizontal = container.orientation == "horizontal"
    scale = Scale(axes.yaxis if is_horizontal else axes.xaxis)
    for bar in container.patches:
        if is_horizontal:
            middle, value = bar.get_y() + bar.get_height() / 2, bar.get_width()
        else:
            middle, value = bar.get_x() + bar.get_width() / 2, bar.get_height()
        yield {"label": scale.label(middle), "value": _number(value), "group": _name(container)}


class Scale:
    """An axis: how its numbers become values."""

    def __init__(self, axis):
        from matplotlib.category import StrCategoryConverter
        from matplotlib.dates import ConciseDateConverter, DateConverter, _SwitchableDateConverter
        from matplotlib.ticker import FixedFormatter, FuncFormatter

        self._axis = axis
        converter = axis.get_converter()
        self._categories = None
        self.kind = axis.get_scale()
        if isinstance(converter, (DateConverter, ConciseDateConverter, _SwitchableDateConverter)):
            self.kind = "datetime"
        elif isinstance(converter, StrCategoryConverter) and axis.units is not None:
            self.kind = "categorical"
            self._categories = {number: name for name, number in axis.units._mapping.items()}
        low, high = sorted(axis.get_view_interval())
        self._ticks = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
        self._texts = axis.get_major_formatter().format_ticks(self._ticks)
        self._is_labelled = isinstance(axis.get_major_formatter(), (FixedFormatter, FuncFormatter))

    def value(self, number):
        """A number of the axis as its user would write it: a category, a date or a number."""
        number = _number(number)
        if number is None:
            return None
        if self._categories is not None:
            return self._categories.get(round(number), str(number))
        if self.kind == "datetime":
            from matplotlib.dates import num2date

            return num2date(number).replace(tzinfo=None).isoformat()
        return number

    def label(self, number):
        """The text for a bar at a number: that of the nearest tick, if the user has labelled the ticks."""
        if self._is_labelled and self._ticks:
            distance, text = min((abs(tick - number), text) for tick, text in zip(self._ticks, self._texts))
            if text and distance <= 0.5:
                return text
        value = self.value(number)
        return value if isinstance(value, str) else f"{value:g}"

    def shown(self, name):
        return {
            f"{name}_ticks": [self.value(tick) for tick in self._ticks],
            f"{name}_tick_labels": list(self._texts),
            f"{name}_scale": self.kind,
        }


def _note_boxes(module):
    """Notes the boxes of every box plot on its axis."""
    bxp = module.Axes.bxp

    @functools.wraps(bxp)
    def noted(self, bxpstats, *arguments, **options):
        bxpstats = list(bxpstats)
        artists = bxp(self, bxpstats, *arguments, **options)
        boxes = [(artist, _box(stats)) for artist, stats in zip(artists["medians"], bxpstats)]
        setattr(self, BOXES, getattr(self, BOXES, []) + boxes)
        return artists

    module.Axes.bxp = noted


def _box(stats):
    return {
        "label": str(stats.get("label", "")),
        "min": _number(stats["whislo"]),
        "first_quartile": _number(stats["q1"]),
        "median": _number(stats["med"]),
        "third_quartile": _number(stats["q3"]),
        "max": _number(stats["whishi"]),
        "outliers": [_number(outlier) for outlier in stats.get("fliers", [])],
    }


def _boxes_of(axes):
    """The boxes that are still on an axis. One that is drawn over itself, as for its colours, is one."""
    here = set(axes.get_children())
    boxes = []
    for artist, box in getattr(axes, BOXES, []):
        if artist in here and box not in boxes:
            boxes.append(box)
    return boxes
