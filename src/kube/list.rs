//! Lists of the API, one object after the other: a page may be large, while what is kept of each object is small.
//!
//! In: the path of a list. Out: its objects, or what a caller reads of each, and the version of the list.

use super::client::Request;
use super::{Client, KubeError, ObjectRef};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

/// Objects in one page, and names alone.
const PAGE: usize = 200;
const PAGE_OF_NAMES: usize = 500;
/// Requests metadata only.
const NAMES_ALONE: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// An answer, with its objects as they arrived.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: About,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// What a list says of itself.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct About {
    resource_version: String,
    /// Where the next page begins; empty: this is the last one.
    #[serde(rename = "continue")]
    next: String,
}

impl Client {
    /// Lists objects of a kind; `query` is a URL query such as `fieldSelector=spec.nodeName%3Dcp1`.
    pub async fn list(&self, path: &str, query: &str, until: Instant) -> Result<Vec<Value>, KubeError> {
        let mut all = Vec::new();
        self.read_list(path, query, |object| all.push(object), until).await?;
        Ok(all)
    }

    /// Reads each object of such a list, and returns the version of the list.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn read_list(
        &self,
        path: &str,
        query: &str,
        read: impl FnMut(Value) + Send,
        until: Instant,
    ) -> Result<String, KubeError> {
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        Ok(self.page(&Request::get(&path), read, until).await?.resource_version)
    }

    /// Reads each object of a kind that may have many, page by page, and returns the version of the list.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn each(
        &self,
        folder: &str,
        mut read: impl FnMut(&Value) + Send,
        until: Instant,
    ) -> Result<String, KubeError> {
        self.pages(folder, (PAGE, None), &mut |object| read(&object), until).await
    }

    /// The names of all objects of a kind, page by page, without their content.
    pub async fn names(&self, path: &str, kind: &str, until: Instant) -> Result<Vec<ObjectRef>, KubeError> {
        let mut names = Vec::new();
        let mut read = |object: Value| {
            let text = |at: &str| object.pointer(at).and_then(Value::as_str);
            let name = text("/metadata/name").ok_or(KubeError::Nameless { field: "metadata.name" });
            names.push(name.map(|name| ObjectRef::new("v1", kind, text("/metadata/namespace"), name)));
        };
        self.pages(path, (PAGE_OF_NAMES, Some(NAMES_ALONE)), &mut read, until).await?;
        names.into_iter().collect()
    }

    async fn pages(
        &self,
        folder: &str,
        (size, accept): (usize, Option<&'static str>),
        read: &mut (impl FnMut(Value) + Send),
        until: Instant,
    ) -> Result<String, KubeError> {
        let mut from = String::new();
        loop {
            let path = format!("{folder}?limit={size}&continue={from}");
            let about = self.page(&Request { accept, ..Request::get(&path) }, &mut *read, until).await?;
            if about.next.is_empty() {
                return Ok(about.resource_version);
            }
            from = about.next;
        }
    }

    async fn page(
        &self,
        request: &Request,
        mut read: impl FnMut(Value) + Send,
        until: Instant,
    ) -> Result<About, KubeError> {
        let what = format!("list {}", request.path.split("?limit=").next().unwrap_or_default());
        let garbled = |error: serde_json::Error| KubeError::Garbled { what: what.clone(), why: error.to_string() };
        let body = self.body(&what, until, || request.clone()).await?;
        let page: Page<'_> = serde_json::from_slice(&body).map_err(garbled)?;
        let Some(items) = page.items else {
            return Err(KubeError::Garbled { what: what.clone(), why: "it is not a list".to_owned() });
        };
        for object in items {
            read(serde_json::from_str(object.get()).map_err(garbled)?);
        }
        Ok(page.metadata)
    }
}
