//! The rows of the bench: what was measured on both sides, and the limit that decides.

use anyhow::Result;
use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The unit of both sides of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    /// Milliseconds.
    Ms,
    /// Mebibytes.
    Mib,
    /// Milliseconds of CPU time per second.
    CpuMs,
    /// A number of things.
    Count,
}

/// The rule that decides whether a row holds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "limit")]
pub(super) enum Judge {
    /// The ratio of the medians.
    Ratio(f64),
    /// The worst value of our side, which is no time.
    AtMost(f64),
    /// The median of our side, which depends on the machine: it is noted and decides nothing.
    Noted(f64),
    /// Nothing: the row is only shown.
    Shown,
}

/// A row of the table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    /// The part of the bench that measured it.
    pub(super) part: String,
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) ours: Vec<f64>,
    pub(super) peer: Vec<f64>,
    /// The other side, such as `runsc`.
    pub(super) beside: String,
    pub(super) judge: Judge,
    /// The plot that shows the row, and the label there.
    pub(super) plotted: Option<(String, String)>,
    /// Why it was not measured.
    pub(super) missing: Option<String>,
}

impl Row {
    /// A row in milliseconds beside `runsc`, whose ratio may be at most `limit`.
    pub(super) fn new(name: impl Into<String>, limit: f64) -> Self {
        Self {
            part: String::new(),
            name: name.into(),
            unit: Unit::Ms,
            ours: Vec::new(),
            peer: Vec::new(),
            beside: "runsc".to_owned(),
            judge: Judge::Ratio(limit),
            plotted: None,
            missing: None,
        }
    }

    /// A row that nothing judges.
    pub(super) fn shown(name: impl Into<String>) -> Self {
        Self { judge: Judge::Shown, ..Self::new(name, 0.0) }
    }

    /// A row whose median has an absolute limit, which is noted and decides nothing.
    pub(super) fn noted(name: impl Into<String>, limit: f64) -> Self {
        Self { judge: Judge::Noted(limit), ..Self::new(name, 0.0) }
    }

    /// A row whose worst value has a limit; not for times.
    pub(super) fn at_most(name: impl Into<String>, limit: f64) -> Self {
        Self { judge: Judge::AtMost(limit), ..Self::new(name, 0.0) }
    }

    pub(super) fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    pub(super) fn beside(self, beside: &str) -> Self {
        Self { beside: beside.to_owned(), ..self }
    }

    pub(super) fn plotted(self, plot: &str, label: &str) -> Self {
        Self { plotted: Some((plot.to_owned(), label.to_owned())), ..self }
    }

    pub(super) fn missing(self, reason: impl Into<String>) -> Self {
        Self { missing: Some(reason.into()), ..self }
    }

    pub(super) fn ratio(&self) -> Option<f64> {
        let both = !self.ours.is_empty() && !self.peer.is_empty();
        both.then(|| median(&self.ours) / median(&self.peer)).filter(|ratio| ratio.is_finite())
    }

    /// Returns whether the limit is met; `None` if there is none, or nothing to compare.
    fn holds(&self) -> Option<bool> {
        if self.missing.is_some() || self.ours.is_empty() {
            return None;
        }
        match self.judge {
            Judge::Ratio(limit) => Some(self.ratio().is_some_and(|ratio| ratio <= limit)),
            Judge::AtMost(limit) => Some(self.ours.iter().all(|value| *value <= limit)),
            Judge::Noted(limit) => Some(median(&self.ours) <= limit),
            Judge::Shown => None,
        }
    }

    /// Returns whether the row was missed and counts.
    pub(super) fn fails(&self) -> bool {
        !matches!(self.judge, Judge::Noted(_)) && self.holds() == Some(false)
    }

    pub(super) fn verdict(&self) -> &'static str {
        if self.missing.is_some() {
            return "not measured";
        }
        match (self.judge, self.holds()) {
            (Judge::Noted(_), Some(true)) => "noted: within",
            (Judge::Noted(_), Some(false)) => "noted: above",
            (_, Some(true)) => "holds",
            (_, Some(false)) => "missed",
            (_, None) => "shown",
        }
    }

    /// Returns its cells: name, both sides, ratio, limit, verdict.
    pub(super) fn cells(&self) -> [String; 6] {
        let name = match &self.missing {
            Some(reason) => format!("{} ({reason})", self.name),
            None => self.name.clone(),
        };
        let unit = self.unit.suffix();
        let peer = if self.peer.is_empty() { "–".to_owned() } else { spread(&self.peer) + unit };
        let peer =
            if self.beside == "runsc" || self.peer.is_empty() { peer } else { format!("{peer}, {}", self.beside) };
        let ours = if self.ours.is_empty() { "–".to_owned() } else { spread(&self.ours) + unit };
        let limit = match self.judge {
            Judge::Ratio(limit) => format!("{limit:.2}"),
            Judge::AtMost(limit) | Judge::Noted(limit) => format!("{limit}{unit}"),
            Judge::Shown => "–".to_owned(),
        };
        let ratio = self.ratio().map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        [name, ours, peer, ratio, limit, self.verdict().to_owned()]
    }

    /// Returns the row for programs: the values, and what follows from them.
    pub(super) fn to_json(&self) -> Result<Value> {
        let mut value = serde_json::to_value(self)?;
        value["median"] = json!(median(&self.ours));
        value["peer_median"] = json!(median(&self.peer));
        value["ratio"] = json!(self.ratio());
        value["verdict"] = json!(self.verdict());
        Ok(value)
    }
}

impl Unit {
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Ms => " ms",
            Self::Mib => " MiB",
            Self::CpuMs => " ms/s",
            Self::Count => "",
        }
    }
}

pub(super) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the value below which this part of the values is.
pub(super) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Returns the least and the greatest value.
pub(super) fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(*value), most.max(*value)))
}

fn spread(values: &[f64]) -> String {
    let median = median(values);
    let digits = if median.abs() < 10.0 && median.fract() != 0.0 { 2 } else { 0 };
    if values.len() == 1 {
        return format!("{median:.digits$}");
    }
    let (least, most) = range(values);
    format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
}

pub(super) fn print(rows: &[Row]) {
    let mut table = Table::new();
    let heads = ["what", "dorm: median (min–max)", "peer: median (min–max)", "ratio", "limit", ""];
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(heads);
    for row in rows {
        table.add_row(row.cells());
    }
    println!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(judge: Judge, ours: &[f64], peer: &[f64]) -> Row {
        Row { judge, ours: ours.to_vec(), peer: peer.to_vec(), ..Row::shown("a row") }
    }

    #[test]
    fn a_ratio_above_its_limit_is_missed_and_counts() {
        let missed = row(Judge::Ratio(0.5), &[60.0, 50.0, 70.0], &[100.0]);
        assert_eq!((missed.verdict(), missed.fails()), ("missed", true));
        let held = row(Judge::Ratio(0.5), &[50.0], &[100.0, 90.0, 110.0]);
        assert_eq!((held.verdict(), held.fails()), ("holds", false));
    }

    #[test]
    fn a_ratio_without_a_peer_is_missed() {
        assert!(row(Judge::Ratio(0.5), &[1.0], &[]).fails());
    }

    #[test]
    fn an_absolute_time_is_noted_and_does_not_count() {
        let above = row(Judge::Noted(150.0), &[200.0], &[50.0]);
        assert_eq!((above.verdict(), above.fails()), ("noted: above", false));
    }

    #[test]
    fn the_worst_value_decides_where_an_absolute_limit_counts() {
        assert!(row(Judge::AtMost(1.0), &[0.5, 1.5], &[]).fails());
        assert!(!row(Judge::AtMost(1.0), &[0.5, 1.0], &[]).fails());
    }

    #[test]
    fn a_row_that_was_not_measured_says_why_and_does_not_count() {
        let missing = row(Judge::Ratio(0.5), &[], &[]).missing("no mkfs.xfs");
        assert_eq!((missing.verdict(), missing.fails()), ("not measured", false));
        assert_eq!(missing.cells()[0], "a row (no mkfs.xfs)");
    }
}
