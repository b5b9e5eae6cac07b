//! Amounts of memory, disk and CPU as people read them.

use std::fmt;

/// A number of bytes, shown in the largest unit that fits, such as `512 MiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let (mut value, mut unit) = (self.0 as f64 / 1024.0, 0);
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let text = format!("{value:.1}");
        write!(f, "{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
    }
}

/// A number of thousandths of a CPU, shown as CPUs, such as `0.5 CPUs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuCount(pub u64);

impl fmt::Display for CpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1000 { "" } else { "s" };
        write!(f, "{} CPU{plural}", self.0 as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (512 << 20, "512 MiB"),
            ((1 << 30) - 1, "1 GiB"),
            (4 << 40, "4 TiB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }

    #[test]
    fn thousandths_of_a_cpu_are_shown_as_cpus() {
        for (millis, text) in [(500, "0.5 CPUs"), (1000, "1 CPU"), (2000, "2 CPUs")] {
            assert_eq!(CpuCount(millis).to_string(), text);
        }
    }
}
