//! Sandbox pools.

use dorm_api_types as wire;
use reqwest::Method;

use super::{Client, ClientError, segment};

impl Client {
    /// Creates a sandbox pool.
    pub async fn create_pool(&self, asked: &wire::CreatePool) -> Result<wire::Pool, ClientError> {
        self.make("/pools", asked).await
    }

    /// Returns all pools.
    pub async fn pools(&self) -> Result<Vec<wire::Pool>, ClientError> {
        self.pages("/pools", &[], |page: wire::PoolList| (page.pools, page.next)).await
    }

    /// Returns a pool.
    pub async fn pool(&self, name: &str) -> Result<wire::Pool, ClientError> {
        self.get(&format!("/pools/{}", segment(name))).await
    }

    /// Changes how many sandboxes wait in a pool, and how many it may have.
    pub async fn resize_pool(&self, name: &str, asked: &wire::ResizePool) -> Result<wire::Pool, ClientError> {
        self.read(self.request(Method::PUT, &format!("/pools/{}/size", segment(name))).json(asked)).await
    }

    /// Claims a sandbox of a pool. It runs when this returns.
    pub async fn claim(&self, pool: &str, asked: &wire::ClaimRequest) -> Result<wire::Sandbox, ClientError> {
        self.make(&format!("/pools/{}/claim", segment(pool)), asked).await
    }

    /// Deletes a pool and the sandboxes that wait in it.
    pub async fn delete_pool(&self, name: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/pools/{}", segment(name)))).await
    }
}
