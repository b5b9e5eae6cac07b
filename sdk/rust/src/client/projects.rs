//! Projects and their secrets.

use dorm_api_types as wire;
use reqwest::Method;

use super::{Client, ClientError, segment};

impl Client {
    /// Creates a project.
    pub async fn create_project(&self, asked: &wire::CreateProject) -> Result<wire::Project, ClientError> {
        self.post("/projects", asked).await
    }

    /// Returns all projects.
    pub async fn projects(&self) -> Result<Vec<wire::Project>, ClientError> {
        self.pages("/projects", &[], |page: wire::ProjectList| (page.projects, page.next)).await
    }

    /// Returns a project, with its budgets and what it uses.
    pub async fn project(&self, name: &str) -> Result<wire::Project, ClientError> {
        self.get(&format!("/projects/{}", segment(name))).await
    }

    /// Replaces the budgets of a project.
    pub async fn set_budgets(&self, name: &str, budgets: &wire::ProjectBudgets) -> Result<wire::Project, ClientError> {
        self.read(self.request(Method::PUT, &format!("/projects/{}/budgets", segment(name))).json(budgets)).await
    }

    /// Deletes a project. It must be empty.
    pub async fn delete_project(&self, name: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/projects/{}", segment(name)))).await
    }

    /// Creates a secret of the project, or changes its value.
    pub async fn set_secret(&self, name: &str, asked: &wire::SetSecret) -> Result<wire::ProjectSecret, ClientError> {
        self.read(self.request(Method::PUT, &format!("/secrets/{}", segment(name))).json(asked)).await
    }

    /// Returns the secrets of the project, without their values.
    pub async fn secrets(&self) -> Result<Vec<wire::ProjectSecret>, ClientError> {
        self.pages("/secrets", &[], |page: wire::SecretList| (page.secrets, page.next)).await
    }

    /// Returns a secret of the project, without its value.
    pub async fn secret(&self, name: &str) -> Result<wire::ProjectSecret, ClientError> {
        self.get(&format!("/secrets/{}", segment(name))).await
    }

    /// Deletes a secret of the project.
    pub async fn delete_secret(&self, name: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/secrets/{}", segment(name)))).await
    }
}
