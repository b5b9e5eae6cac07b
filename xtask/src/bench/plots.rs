//! Plots of rows, as SVG: a pair of bars for each row, with a line from the least to the greatest
//! value. The same rows give the same bytes, so that a change of a plot is a change of its rows.

use std::fmt::Write as _;

use super::rows::{Row, Unit, median, range};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 72.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 40.0;
/// The colours of our bars and those of the peer, which differ in lightness as well.
const COLOURS: [&str; 2] = ["#1f6f8b", "#e0a458"];
/// How many lines divide the height.
const LINES: u32 = 4;

/// A plot, with the name of its file.
pub(super) struct Plot {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
}

pub(super) const PLOTS: [Plot; 3] = [
    Plot { name: "wake", title: "Wake from disk to first exec, by memory" },
    Plot { name: "forks", title: "Memory of forks of 256 MiB, without page cache" },
    Plot { name: "idle", title: "CPU of an idle running sandbox" },
];

impl Plot {
    /// Draws those of `rows` that belong to the plot; `None` if none was measured.
    pub(super) fn draw(&self, rows: &[Row]) -> Option<String> {
        let mut pairs = Vec::new();
        for row in rows {
            if let Some((plot, label)) = &row.plotted
                && plot == self.name
                && !row.ours.is_empty()
            {
                pairs.push((label.as_str(), row));
            }
        }
        let unit = pairs.first()?.1.unit;
        let values = pairs.iter().flat_map(|(_, row)| row.ours.iter().chain(&row.peer));
        let most = round_up(values.copied().fold(0.0, f64::max));
        let mut svg = head(self.title);
        scale(&mut svg, most, unit);
        let step = (WIDTH - LEFT - 16.0) / pairs.len() as f64;
        for (number, (label, row)) in pairs.iter().enumerate() {
            let middle = step.mul_add(number as f64 + 0.5, LEFT);
            let width = (step * 0.3).min(70.0);
            for (side, values) in [&row.ours, &row.peer].into_iter().enumerate() {
                bar(&mut svg, width.mul_add(side as f64 - 1.0, middle), width - 6.0, values, (most, COLOURS[side]));
            }
            text(&mut svg, (middle, HEIGHT - BOTTOM + 18.0), "middle", label);
        }
        for (side, name) in ["dorm", "runsc"].into_iter().enumerate() {
            let x = 90.0f64.mul_add(side as f64, WIDTH - 190.0);
            let _ = writeln!(svg, r#"<rect x="{x}" y="12" width="12" height="12" fill="{}"/>"#, COLOURS[side]);
            text(&mut svg, (x + 18.0, 22.0), "start", name);
        }
        svg.push_str("</svg>\n");
        Some(svg)
    }
}

fn head(title: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\" aria-label=\"{title}\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, (16.0, 22.0), "start", title);
    svg
}

/// Draws the lines behind the bars, with their values.
fn scale(svg: &mut String, most: f64, unit: Unit) {
    for line in 0..=LINES {
        let value = most * f64::from(line) / f64::from(LINES);
        let y = height_of(value, most);
        let _ = writeln!(svg, r##"<path d="M{LEFT} {y:.1}H{:.1}" stroke="#dddddd"/>"##, WIDTH - 16.0);
        text(svg, (LEFT - 6.0, y + 4.0), "end", &format!("{}{}", number(value), unit.suffix()));
    }
}

fn bar(svg: &mut String, x: f64, width: f64, values: &[f64], (most, colour): (f64, &str)) {
    if values.is_empty() {
        return;
    }
    let top = height_of(median(values), most);
    let tall = (HEIGHT - BOTTOM - top).max(1.0);
    let _ = writeln!(svg, r#"<rect x="{x:.1}" y="{top:.1}" width="{width:.1}" height="{tall:.1}" fill="{colour}"/>"#);
    let (least, greatest) = range(values);
    let (low, high) = (height_of(least, most), height_of(greatest, most));
    let middle = x + width / 2.0;
    let _ = writeln!(svg, r##"<path d="M{middle:.1} {low:.1}V{high:.1}" stroke="#333333"/>"##);
    text(svg, (middle, high.min(top) - 4.0), "middle", &number(median(values)));
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
}

fn height_of(value: f64, most: f64) -> f64 {
    (HEIGHT - BOTTOM - TOP).mul_add(-(value.max(0.0) / most), HEIGHT - BOTTOM)
}

fn number(value: f64) -> String {
    if value >= 10.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// Returns the next number of the form 1, 2, 4 or 8 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(0.001).log10().floor());
    let step = [1.0, 2.0, 4.0, 8.0].into_iter().find(|step| step * power >= value).unwrap_or(10.0);
    step * power
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_pair_of_bars_for_each_of_its_rows() {
        let row =
            |label: &str| Row { ours: vec![1.0, 2.0], peer: vec![10.0], ..Row::shown("x").plotted("wake", label) };
        let other = Row { ours: vec![1.0], ..Row::shown("x").plotted("idle", "other") };
        let svg = PLOTS[0].draw(&[row("256 MiB"), other, row("1 GiB")]).unwrap();
        // The background, two names and four bars.
        assert_eq!(svg.matches("<rect").count(), 1 + 2 + 4);
        assert!(svg.contains("256 MiB") && svg.contains("1 GiB") && !svg.contains("other"));
    }

    #[test]
    fn a_plot_without_rows_is_not_drawn() {
        assert_eq!(PLOTS[0].draw(&[Row::shown("x").plotted("wake", "1 GiB")]), None);
    }

    #[test]
    fn the_scale_ends_above_the_greatest_value() {
        assert_eq!([0.3, 1.0, 11.0, 900.0].map(round_up), [0.4, 1.0, 20.0, 1000.0]);
    }
}
