//! Projects.

use dorm_api_types as wire;
use dorm_lifecycle::Timestamp;
use dorm_service::{ProjectUse, ProjectView};
use dorm_store::{ProjectBudgets, ProjectRecord};

use super::{Convert as _, Of, time};

impl Of<ProjectView> for wire::Project {
    fn of(view: ProjectView) -> Self {
        let ProjectView { project: ProjectRecord { id, budgets, created, removed: _, secrets: _ }, used } = view;
        Self {
            name: id.to_string(),
            budgets: budgets.convert(),
            used: used.convert(),
            created_at: (created != Timestamp::default()).then(|| time(created)),
        }
    }
}

impl Of<ProjectUse> for wire::ProjectUse {
    fn of(used: ProjectUse) -> Self {
        let ProjectUse { sandboxes, running, cpu_millis, memory_bytes, disk_bytes } = used;
        Self { sandboxes, running, cpu_millis, memory_bytes, disk_bytes }
    }
}

impl Of<ProjectBudgets> for wire::ProjectBudgets {
    fn of(budgets: ProjectBudgets) -> Self {
        let ProjectBudgets { sandboxes, running, cpu_millis, memory_bytes, disk_bytes } = budgets;
        Self { sandboxes, running, cpu_millis, memory_bytes, disk_bytes }
    }
}

impl Of<wire::ProjectBudgets> for ProjectBudgets {
    fn of(budgets: wire::ProjectBudgets) -> Self {
        let wire::ProjectBudgets { sandboxes, running, cpu_millis, memory_bytes, disk_bytes } = budgets;
        Self { sandboxes, running, cpu_millis, memory_bytes, disk_bytes }
    }
}
