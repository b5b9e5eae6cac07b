use super::*;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn descriptor(platform: Option<(&str, &str)>) -> Descriptor {
    Descriptor {
        media_type: "application/vnd.oci.image.manifest.v1+json".into(),
        digest: DIGEST.parse().unwrap(),
        bytes: 1,
        platform: platform.map(|(os, architecture)| (os.into(), architecture.into())),
        name: None,
    }
}

#[test]
fn a_digest_that_could_lead_elsewhere_is_none() {
    for bad in ["", "sha256:", "sha256:../../etc/passwd", "sha512:00", "md5:x", &DIGEST.to_uppercase(), &DIGEST[..70]] {
        assert!(bad.parse::<BlobDigest>().is_err(), "{bad}");
    }
    assert_eq!(DIGEST.parse::<BlobDigest>().unwrap().to_string(), DIGEST);
    assert_eq!(BlobDigest::from_bytes(&[0xab; 32]).hex(), "ab".repeat(32));
}

#[test]
fn manifests_and_indexes_are_distinguished_by_their_content() {
    let one = format!(r#"{{"digest":"{DIGEST}","size":3,"mediaType":"x"}}"#);
    let manifest = format!(r#"{{"schemaVersion":2,"config":{one},"layers":[{one},{one}]}}"#);
    let Document::Manifest(found) = Document::parse(manifest.as_bytes()).unwrap() else { panic!("an index") };
    assert_eq!((found.layers.len(), found.layers[1].bytes), (2, 3));
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{one}]}}"#);
    assert!(matches!(Document::parse(index.as_bytes()).unwrap(), Document::Index(list) if list.len() == 1));
}

#[test]
fn documents_that_are_none_are_refused_with_the_reason() {
    let one = format!(r#"{{"digest":"{DIGEST}","size":3}}"#);
    let many = vec![one.clone(); LAYERS_MAX + 1].join(",");
    for (text, expected) in [
        ("", "is invalid"),
        ("[]", "is invalid"),
        ("{}", "neither"),
        (r#"{"schemaVersion":1,"fsLayers":[]}"#, "schema 1"),
        (r#"{"manifests":[{"digest":"sha256:..","size":1}]}"#, "64 lower-case"),
        (r#"{"manifests":[{"digest":"sha512:00","size":1}]}"#, "is not sha256"),
        (r#"{"manifests":[{"digest":"x","size":-1}]}"#, "is invalid"),
        (&format!(r#"{{"config":{one},"layers":[{many}]}}"#), "more than 512 layers"),
    ] {
        let error = Document::parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn the_image_for_an_architecture_is_chosen_and_others_are_named() {
    let index = [
        descriptor(Some(("windows", "amd64"))),
        descriptor(Some(("linux", "arm64"))),
        descriptor(Some(("linux", "amd64"))),
        descriptor(Some(("unknown", "unknown"))),
    ];
    assert_eq!(choose(&index, "amd64").unwrap(), &index[2]);
    assert_eq!(choose(&index, "arm64").unwrap(), &index[1]);
    let error = choose(&index, "riscv64").unwrap_err();
    assert!(error.contains("linux/arm64, linux/amd64") && !error.contains("unknown"), "{error}");
    let unnamed = [descriptor(None)];
    assert_eq!(choose(&unnamed, "amd64").unwrap(), &unnamed[0]);
}

#[test]
fn a_configuration_says_how_programs_are_run() {
    let text = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":["{DIGEST}"]}},
        "config":{{"Env":["PATH=/bin","A=b=c"],"Entrypoint":["/init"],"Cmd":["serve"],"WorkingDir":"/srv","User":"ann",
        "ExposedPorts":{{"80/tcp":{{}}}}}}}}"#
    );
    let found = Configuration::parse(text.as_bytes()).unwrap();
    assert_eq!(found.diff_ids.len(), 1);
    assert_eq!(found.settings.start(), ["/init", "serve"]);
    assert_eq!(found.settings.variables().collect::<Vec<_>>(), [("PATH", "/bin"), ("A", "b=c")]);
    assert_eq!((found.settings.directory.as_deref(), found.settings.user.as_deref()), (Some("/srv"), Some("ann")));
    assert_eq!(found.settings.ports, ["80/tcp"]);
    let bare = r#"{"rootfs":{},"config":{"Cmd":null,"User":"","Entrypoint":null}}"#;
    assert_eq!(Configuration::parse(bare.as_bytes()).unwrap().settings, ImageConfig::default());
}

#[test]
fn a_configuration_for_something_else_is_refused() {
    for (text, expected) in [
        (r#"{"os":"windows","rootfs":{}}"#, "windows"),
        (r#"{"rootfs":{"diff_ids":["../x"]}}"#, "sha256"),
        (r#"{"rootfs":{},"config":{"Env":["=x"]}}"#, "variable"),
        (r#"{}"#, "is invalid"),
    ] {
        let error = Configuration::parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_brings_the_reader_down(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Document::parse(&bytes);
            let _ = Configuration::parse(&bytes);
        }
    }
}
