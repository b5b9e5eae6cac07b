//! The usage of sandboxes.

use std::time::Duration;

use dorm_api_types as wire;

use dorm_service::{Usage, UsageSample};

use super::{Convert, Of, time};

impl Of<Usage> for wire::Usage {
    fn of(usage: Usage) -> Self {
        Self {
            cpu_secs: Duration::from_micros(usage.cpu_micros).as_secs_f64(),
            memory_bytes: usage.memory_bytes,
            processes: usage.processes,
            disk_bytes: usage.disk_bytes,
            network: usage.network.map(|traffic| wire::NetworkUsage {
                sent_bytes: traffic.sent_bytes,
                received_bytes: traffic.received_bytes,
                limit_bytes_per_second: traffic.limit_bytes_per_second,
            }),
            disk_io: usage.disk_io.map(|io| wire::DiskIo {
                read_bytes: io.read_bytes,
                written_bytes: io.written_bytes,
                read_limit: io.read_limit,
                write_limit: io.write_limit,
                operations_limit: io.operations_limit,
            }),
        }
    }
}

impl Of<UsageSample> for wire::UsageSample {
    fn of(sample: UsageSample) -> Self {
        Self {
            taken_at: time(sample.taken),
            cpus: sample.cpu_millis.map(|millis| f64::from(millis) / 1000.0),
            resources: sample.resources.convert(),
            usage: sample.usage.convert(),
        }
    }
}
