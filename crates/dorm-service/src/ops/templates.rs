//! Templates: names with tags, under which sandboxes are created.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use dorm_lifecycle::{FirstProgram, Resources, TemplateId, TemplateName};
use dorm_store::{Change, RowKind, TemplateRecord, TemplateSource, TemplateVersion};
use sha2::{Digest as _, Sha256};

use super::create::{CreateFrom, CreateSpec};
use crate::error::{BuildProblem, ServiceError};
use crate::shared::{Service, Shared};

/// The tag that is meant if none is given.
pub const DEFAULT_TAG: &str = "latest";
/// The largest number of templates of a project, and of tags of a template.
const MANY: usize = 1000;

/// A template and one of its tags: `NAME` or `NAME:TAG`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TemplateReference {
    /// The name.
    pub name: TemplateName,
    /// The tag.
    pub tag: String,
}

impl FromStr for TemplateReference {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let (name, tag) = text.split_once(':').unwrap_or((text, DEFAULT_TAG));
        let bad = |reason: String| BuildProblem::BadTemplate { template: text.to_owned(), reason };
        let name = name.parse().map_err(|error: dorm_lifecycle::IdError| bad(error.to_string()))?;
        check_tags(text, &[tag.to_owned()])?;
        Ok(Self { name, tag: tag.to_owned() })
    }
}

impl fmt::Display for TemplateReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.tag)
    }
}

impl TemplateReference {
    /// The error that there is no such template.
    pub(crate) fn missing(&self) -> ServiceError {
        BuildProblem::NoTemplate(self.to_string()).into()
    }

    /// The error that a template cannot be used for something.
    pub(crate) fn unfit(&self, reason: &str) -> ServiceError {
        BuildProblem::BadTemplate { template: self.to_string(), reason: reason.to_owned() }.into()
    }
}

/// A template to create or to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TemplateSpec {
    /// Its name.
    pub name: TemplateName,
    /// The tags that are to stand for this.
    pub tags: Vec<String>,
    /// The origin of its sandboxes: an image or a snapshot.
    pub from: CreateFrom,
    /// Their resource limits.
    pub resources: Option<Resources>,
    /// Environment variables of every process in them.
    pub variables: BTreeMap<String, String>,
    /// The program to start in each before it counts as created. Default: the one that the snapshot
    /// carries if it boots, else none.
    pub program: Option<FirstProgram>,
}

/// Rejects invalid tags.
pub(crate) fn check_tags(template: &str, tags: &[String]) -> Result<(), ServiceError> {
    let bad = |reason: String| BuildProblem::BadTemplate { template: template.to_owned(), reason };
    let is_legal = |tag: &&String| {
        (1..=63).contains(&tag.len())
            && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
            && tag.starts_with(|first: char| first.is_ascii_alphanumeric())
    };
    match tags.iter().find(|tag| !is_legal(tag)) {
        Some(tag) => {
            Err(bad(format!("'{tag}' is not a tag: tags are 1 to 63 letters, digits, '.', '_' and '-'")).into())
        }
        None if tags.is_empty() => Err(bad("it has no tag".to_owned()).into()),
        None => Ok(()),
    }
}

impl Service {
    /// Makes tags of a template stand for an image or a snapshot. The template is created if it is
    /// missing.
    ///
    /// # Errors
    ///
    /// `Build` for invalid tags; those of [`Service::create`] for what sandboxes start from.
    pub async fn put_template(&self, asked: TemplateSpec) -> Result<TemplateRecord, ServiceError> {
        check_tags(asked.name.as_str(), &asked.tags)?;
        let shared = &self.shared;
        if let CreateFrom::Snapshot(id) = &self.source_named(asked.from.clone()).await? {
            // That can take as long as a save, during which no build must wait.
            self.wait_for_held(id).await?;
        }
        let _turn = shared.builds.turn.lock().await;
        // The snapshot is not deleted until the template is recorded.
        let _staying = shared.holding.clone().read_owned().await;
        self.exists()?;
        if let Some(resources) = &asked.resources {
            resources.check()?;
        }
        let source = match &self.source_named(asked.from).await? {
            CreateFrom::Image(reference) => TemplateSource::Image(self.image(reference).await?.digest),
            CreateFrom::Snapshot(id) => {
                self.is_to_stay(id).await?;
                let snapshot = self.complete_now(id).await?;
                if snapshot.kind == dorm_lifecycle::SnapshotKind::Memory
                    && asked.resources.is_some_and(|asked| asked != snapshot.resources)
                {
                    let what = "the resource limits (cpu, memory, disk, processes)";
                    return Err(ServiceError::FixedBySnapshot { snapshot: id.clone(), what });
                }
                TemplateSource::Snapshot(id.clone())
            }
            CreateFrom::Template(template) => return Err(template.unfit("a template cannot be made from a template")),
        };
        let version = TemplateVersion {
            source,
            resources: asked.resources,
            variables: asked.variables,
            program: asked.program,
            build: None,
            created: shared.now(),
        };
        let mut template = self.template_or_new(&asked.name).await?;
        template.tags.extend(asked.tags.into_iter().map(|tag| (tag, version.clone())));
        self.write_template(template).await
    }

    /// Makes further tags stand for what a tag stands for.
    ///
    /// # Errors
    ///
    /// `Build` if there is no such template or tag, or for invalid tags.
    pub async fn tag_template(
        &self,
        from: &TemplateReference,
        tags: Vec<String>,
    ) -> Result<TemplateRecord, ServiceError> {
        check_tags(from.name.as_str(), &tags)?;
        let _turn = self.shared.builds.turn.lock().await;
        let mut template = self.own_template(from.name.as_str()).await?;
        let version = template.tags.get(&from.tag).cloned().ok_or_else(|| from.missing())?;
        let version = TemplateVersion { created: self.shared.now(), ..version };
        template.tags.extend(tags.into_iter().map(|tag| (tag, version.clone())));
        self.write_template(template).await
    }

    /// Records whether a template is published.
    ///
    /// # Errors
    ///
    /// `Build` if there is no such template.
    pub async fn publish_template(&self, name: &str, is_public: bool) -> Result<TemplateRecord, ServiceError> {
        let _turn = self.shared.builds.turn.lock().await;
        let mut template = self.own_template(name).await?;
        template.is_public = is_public;
        self.write_template(template).await
    }

    /// Removes a template, or one tag of it. A template without tags is removed.
    ///
    /// # Errors
    ///
    /// `Build` if there is no such template or tag.
    pub async fn remove_template(&self, name: &str, tag: Option<&str>) -> Result<(), ServiceError> {
        let _turn = self.shared.builds.turn.lock().await;
        let template = self.own_template(name).await?;
        let tags: Vec<String> = match tag {
            None => template.tags.keys().cloned().collect(),
            Some(tag) => vec![tag.to_owned()],
        };
        self.without_tags(template, &tags).await
    }

    /// Removes tags of a template; if one is missing, it removes none. A template without tags is
    /// removed.
    ///
    /// # Errors
    ///
    /// `Build` if there is no such template, or it has not all of the tags.
    pub async fn remove_template_tags(&self, name: &str, tags: &[String]) -> Result<(), ServiceError> {
        let _turn = self.shared.builds.turn.lock().await;
        let template = self.own_template(name).await?;
        self.without_tags(template, tags).await
    }

    async fn without_tags(&self, mut template: TemplateRecord, tags: &[String]) -> Result<(), ServiceError> {
        for tag in tags {
            let missing = || BuildProblem::NoTemplate(format!("{}:{tag}", template.name));
            template.tags.remove(tag).ok_or_else(missing)?;
        }
        let change = match template.tags.is_empty() {
            true => Change { removed_templates: vec![template.id], ..Change::default() },
            false => Change { templates: vec![template], ..Change::default() },
        };
        self.shared.commit_known(change).await?;
        self.shared.removals.poke();
        Ok(())
    }

    /// Returns every template of this project, in the order of names.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn templates(&self) -> Result<Vec<TemplateRecord>, ServiceError> {
        let mut templates = self.shared.store.templates().await?;
        templates.retain(|template| template.project == *self.project());
        templates.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(templates.into_iter().map(|template| self.shared.shown_template(template)).collect())
    }

    /// Returns one template, by name or id.
    ///
    /// # Errors
    ///
    /// `Build` if there is none.
    pub async fn template(&self, name: &str) -> Result<TemplateRecord, ServiceError> {
        Ok(self.shared.shown_template(self.own_template(name).await?))
    }

    /// Returns the resource limits of sandboxes that start from this.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`; an error of the storage if there is no such image; `Build` if there is no such
    /// template or tag.
    pub async fn resources_of(&self, from: &CreateFrom) -> Result<Resources, ServiceError> {
        let reference = match self.source_named(from.clone()).await? {
            CreateFrom::Image(_) => return Ok(Resources::default()),
            CreateFrom::Snapshot(snapshot) => return Ok(self.snapshot_record(&snapshot).await?.resources),
            CreateFrom::Template(reference) => reference,
        };
        let template = self.own_template(reference.name.as_str()).await?;
        let version = template.tags.get(&reference.tag).ok_or_else(|| reference.missing())?;
        match (&version.resources, &version.source) {
            (Some(resources), _) => Ok(*resources),
            (None, TemplateSource::Snapshot(snapshot)) => Ok(self.snapshot_record(snapshot).await?.resources),
            (None, TemplateSource::Image(_)) => Ok(Resources::default()),
        }
    }

    async fn own_template(&self, name: &str) -> Result<TemplateRecord, ServiceError> {
        let templates = self.shared.store.templates().await?.into_iter();
        let mut own = templates.filter(|template| template.project == *self.project());
        let found = own.find(|template| template.name.as_str() == name || template.id.as_str() == name);
        found.ok_or_else(|| BuildProblem::NoTemplate(name.to_owned()).into())
    }

    /// Returns the template of this name, or a new one without tags. The caller holds the turn.
    pub(crate) async fn template_or_new(&self, name: &TemplateName) -> Result<TemplateRecord, ServiceError> {
        let templates = self.shared.store.templates().await?;
        let mut own = templates.into_iter().filter(|template| template.project == *self.project());
        if let Some(found) = own.find(|template| template.name == *name) {
            return Ok(found);
        }
        let (id, created) = (self.template_id(name), self.shared.now());
        self.shared.unreadable().await?.refuse(RowKind::Template, id.as_str(), name.as_str())?;
        let project = self.project().clone();
        Ok(TemplateRecord { id, project, name: name.clone(), is_public: false, tags: BTreeMap::new(), created })
    }

    /// Returns the id that a template of this name has, which its first build names before the
    /// template exists.
    fn template_id(&self, name: &TemplateName) -> TemplateId {
        let mut hash = Sha256::new();
        for part in ["dormouse template 1", self.project().as_str(), name.as_str()] {
            hash.update(part.as_bytes());
            hash.update(b"\0");
        }
        let hash: [u8; 32] = hash.finalize().into();
        let bytes = std::array::from_fn(|at| hash.get(at).copied().unwrap_or_default());
        TemplateId::from_random(bytes)
    }

    /// Returns the id of the template that has this name, or that will have it.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn id_of_template(&self, name: &TemplateName) -> Result<TemplateId, ServiceError> {
        match self.own_template(name.as_str()).await {
            Ok(template) => Ok(template.id),
            Err(ServiceError::Build(BuildProblem::NoTemplate(_))) => Ok(self.template_id(name)),
            Err(error) => Err(error),
        }
    }

    async fn write_template(&self, template: TemplateRecord) -> Result<TemplateRecord, ServiceError> {
        if template.tags.len() > MANY {
            let reason = format!("a template can have {MANY} tags; remove some with `dorm template rm NAME:TAG`");
            return Err(BuildProblem::BadTemplate { template: template.name.to_string(), reason }.into());
        }
        let change = Change { templates: vec![template.clone()], ..Change::default() };
        self.shared.commit_known(change).await?;
        // A tag may have been moved from a snapshot that nothing else needs.
        self.shared.removals.poke();
        Ok(self.shared.shown_template(template))
    }

    /// Returns a request for a sandbox in which a template is replaced by the version that its tag
    /// stands for. Settings of the request override those of the template.
    pub(super) async fn of_template(&self, asked: CreateSpec) -> Result<CreateSpec, ServiceError> {
        let CreateFrom::Template(reference) = &asked.from else { return Ok(asked) };
        let template = self.own_template(reference.name.as_str()).await.map_err(|error| match error {
            ServiceError::Build(_) => reference.missing(),
            error => error,
        })?;
        let version = template.tags.get(&reference.tag).cloned().ok_or_else(|| reference.missing())?;
        let mut variables = version.variables;
        variables.extend(asked.variables);
        Ok(CreateSpec {
            from: match version.source {
                TemplateSource::Image(image) => CreateFrom::Image(image.to_string()),
                TemplateSource::Snapshot(snapshot) => CreateFrom::Snapshot(snapshot),
            },
            resources: asked.resources.or(version.resources),
            variables,
            program: asked.program.or(version.program),
            ..asked
        })
    }
}

impl Shared {
    /// Returns the tags of templates that stand for this.
    pub(crate) async fn template_holders(&self, source: &TemplateSource) -> Result<Vec<String>, ServiceError> {
        Ok(tags_of(&self.store.templates().await?, source))
    }

    fn shown_template(&self, mut template: TemplateRecord) -> TemplateRecord {
        template.created = self.clock.shown(template.created);
        for version in template.tags.values_mut() {
            version.created = self.clock.shown(version.created);
        }
        template
    }
}

/// Returns the tags of these templates that stand for `source`.
pub(super) fn tags_of(templates: &[TemplateRecord], source: &TemplateSource) -> Vec<String> {
    let of = |template: &TemplateRecord| -> Vec<String> {
        let tags = template.tags.iter().filter(|(_, version)| version.source == *source);
        tags.map(|(tag, _)| format!("template {}:{tag}", template.name)).collect()
    };
    templates.iter().flat_map(of).collect()
}
