//! Images, builds and templates.

use anyhow::Result;
use dorm_client::Dormouse;
use std::collections::BTreeMap;

use bytes::Bytes;
use dorm_client::types::{
    Build, BuildState, BuildStepRequest, ComposeImage, CreateBuild, CreateTemplate, Image, ImageConfig, ImportImage,
    Pull, PullImage, SnapshotKind, TagTemplate,
};
use dorm_client::{Client, Progress};
use futures_util::TryStreamExt as _;

use crate::cases::{Cases, code_of, error_of};
use crate::place::Place;

/// The archive of a root file system with one file.
fn small_image() -> Bytes {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    tar.append_data(&mut header, "etc/hello", &b"hello"[..]).unwrap();
    tar.into_inner().unwrap().into()
}

fn stream(bytes: Bytes) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    futures_util::stream::iter([Ok(bytes)])
}

async fn built(client: &Client, asked: &CreateBuild) -> anyhow::Result<Build> {
    let build = client.create_build(asked).await?;
    Ok(client.await_build(&build.id).await?)
}

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
}

crate::cases::area! {
    images_are_listed_and_found,
    an_image_is_uploaded_downloaded_and_deleted,
    a_broken_archive_is_an_error,
    paths_of_the_host_are_for_the_socket_alone,
    an_image_that_must_not_be_pulled_is_not,
    an_image_is_composed_from_a_snapshot,
    an_image_is_built_and_the_log_is_followed,
    a_build_that_fails_says_where,
    a_context_is_uploaded_once,
    a_template_stands_for_an_image_with_settings,
    a_template_is_deleted_by_tag_and_as_a_whole,
}

#[tokio::test]
async fn images() {
    let mut cases = Cases::at("images", Place::with_own_images());
    let dormouse = cases.dormouse();
    let on = On { dormouse };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn images_are_listed_and_found(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let base = client.image("base").await?;
    assert!(base.tags.contains(&"base".to_owned()));
    assert!(client.images().await?.iter().any(|image| image.digest == base.digest));
    assert_eq!(code_of(client.image("no-such-image").await), "not_found");
    Ok(())
}

async fn an_image_is_uploaded_downloaded_and_deleted(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let tag = "uploaded".to_owned();
    let upload = client.upload_image(Some(&tag), None, stream(small_image())).await?;
    let mut upload = Progress::<Image>::new(upload);
    while upload.next().await?.is_some() {}
    let image = upload.finish().await?;
    assert_eq!(image.tags, std::slice::from_ref(&tag));
    let (about, file) = client.download_image(&tag).await?;
    assert_eq!(about.image, image.digest);
    assert!(file.try_collect::<Vec<_>>().await?.concat().len() > 1000);
    client.delete_image(&tag).await?;
    assert_eq!(code_of(client.image(&tag).await), "not_found");
    Ok(())
}

async fn a_broken_archive_is_an_error(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let upload = client.upload_image(None, None, stream(Bytes::from_static(b"no archive"))).await;
    let error = match upload {
        Ok(upload) => error_of(Progress::<Image>::new(upload).finish().await),
        Err(error) => error,
    };
    assert!(!error.to_string().is_empty());
    Ok(())
}

async fn paths_of_the_host_are_for_the_socket_alone(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let asked = ImportImage { path: "/etc".to_owned(), tag: None };
    let error = error_of(client.import_image(&asked).await);
    assert_eq!(error.code(), "forbidden");
    Ok(())
}

async fn an_image_that_must_not_be_pulled_is_not(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let asked = PullImage {
        reference: "127.0.0.1:1/none:latest".to_owned(),
        architecture: None,
        tag: None,
        insecure: true,
        pull: Pull::Never,
    };
    let error = match dormouse.pull_image(&asked).await {
        Ok(pull) => error_of(pull.finish().await),
        Err(error) => error,
    };
    assert!(!error.code().is_empty());
    Ok(())
}

async fn an_image_is_composed_from_a_snapshot(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let client = on.dormouse.client();
    let tag = "composed".to_owned();
    let source = dormouse.create("base").await?;
    source.files().write("/root/composed", "yes").await?;
    let snapshot = source.checkpoint(SnapshotKind::Filesystem).await?;
    source.terminate().await?;
    let config =
        ImageConfig { env: vec!["A=1".to_owned()], directory: Some("/root".to_owned()), ..ImageConfig::default() };
    let asked =
        ComposeImage { snapshot: Some(snapshot.id.clone()), config, tag: Some(tag.clone()), ..ComposeImage::default() };
    let composed = Progress::<Image>::new(client.compose_image(&asked).await?).finish().await;
    let tested = async {
        composed?;
        let sandbox = dormouse.create(&tag).await?;
        assert_eq!(sandbox.exec("echo $A; cat composed").await?.stdout_text(), "1\nyes");
        sandbox.terminate().await?;
        anyhow::Ok(())
    };
    let tested = tested.await;
    client.delete_image(&tag).await?;
    client.delete_snapshot(&snapshot.id, true).await?;
    tested
}

async fn an_image_is_built_and_the_log_is_followed(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let client = on.dormouse.client();
    let tag = "built".to_owned();
    let run = |line: &str| BuildStepRequest { run: Some(line.to_owned()), ..BuildStepRequest::default() };
    let asked = CreateBuild {
        from: Some("base".to_owned()),
        steps: vec![run(&format!("echo building {tag} | tee /built"))],
        tag: Some(tag.clone()),
        ..CreateBuild::default()
    };
    let build = client.create_build(&asked).await?;
    let (mut log, mut lines) = (client.follow_build(&build.id, 0).await?, Vec::new());
    while let Some(event) = log.next().await? {
        if event.kind == "line" {
            lines.push(log.parse::<dorm_client::types::BuildLogLine>(&event)?.text);
        }
    }
    assert!(lines.contains(&format!("building {tag}")), "{lines:?}");
    let build = client.await_build(&build.id).await?;
    assert_eq!((build.state, build.tag.as_deref()), (BuildState::Succeeded, Some(tag.as_str())));
    assert!(!client.build_log(&build.id, 0).await?.lines.is_empty());
    let sandbox = dormouse.create(&tag).await?;
    assert!(sandbox.files().exists("/built").await?);
    sandbox.terminate().await?;
    client.delete_image(&tag).await?;
    for snapshot in build.steps.iter().filter_map(|step| step.snapshot.as_ref()) {
        client.delete_snapshot(snapshot, true).await?;
    }
    Ok(())
}

async fn a_build_that_fails_says_where(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let dockerfile = Some("FROM base\nRUN exit 3\n".to_owned());
    let build = built(client, &CreateBuild { dockerfile, ..CreateBuild::default() }).await?;
    assert_eq!(build.state, BuildState::Failed);
    assert_eq!(build.failure.and_then(|failure| failure.exit_code), Some(3));
    assert!(client.builds().await?.iter().any(|one| one.id == build.id));
    assert_eq!(client.cancel_build(&build.id).await?.state, BuildState::Failed);
    Ok(())
}

async fn a_context_is_uploaded_once(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let hash = "0".repeat(64);
    assert!(!client.has_context(&hash).await?);
    assert_eq!(client.upload_context(&hash, stream(small_image())).await?.hash, hash);
    assert!(client.has_context(&hash).await?);
    Ok(())
}

async fn a_template_stands_for_an_image_with_settings(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let client = on.dormouse.client();
    let asked = CreateTemplate {
        name: "worker".to_owned(),
        tags: vec!["v1".to_owned()],
        image: Some("base".to_owned()),
        env: BTreeMap::from([("FROM".to_owned(), "template".to_owned())]),
        ..CreateTemplate::default()
    };
    client.create_template(&asked).await?;
    let tags = TagTemplate { from: "v1".to_owned(), tags: vec!["stable".to_owned()] };
    assert_eq!(client.tag_template("worker", &tags).await?.tags.len(), 2);
    let create = dormouse.create_with(Default::default());
    let sandbox = create.with(|asked| asked.template = Some("worker:stable".to_owned())).await?;
    assert_eq!(sandbox.exec("echo $FROM").await?.stdout_text(), "template\n");
    sandbox.terminate().await?;
    Ok(())
}

async fn a_template_is_deleted_by_tag_and_as_a_whole(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    client.delete_template("worker", Some("v1")).await?;
    assert_eq!(client.template("worker").await?.tags.keys().collect::<Vec<_>>(), ["stable"]);
    assert_eq!(client.templates().await?.len(), 1);
    client.delete_template("worker", None).await?;
    assert_eq!(code_of(client.template("worker").await), "not_found");
    Ok(())
}
