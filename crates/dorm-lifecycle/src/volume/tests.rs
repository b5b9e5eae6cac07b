use super::*;

fn volume(number: u8) -> VolumeId {
    VolumeId::from_random([number; 20])
}

fn attachment(path: &str, slot: u8) -> Attachment {
    let path = path.parse().expect("path");
    Attachment { volume: volume(1), path, access: Access::Write, subpath: SubPath::default(), slot }
}

#[test]
fn a_volume_appears_at_an_absolute_path_that_is_not_the_sandboxs_own() {
    for legal in ["/data", "/home/user/a b", "/run/x", "/etc/app", "/development", "/ä"] {
        assert!(legal.parse::<MountPath>().is_ok(), "{legal}");
    }
    let illegal =
        ["", "/", "data", "/a/", "//a", "/a/../b", "/a/./b", "/a\n", "/proc", "/proc/x", "/dev/shm", "/sys/a"];
    for illegal in illegal.into_iter().chain(["/dorm-agent", "/etc", "/etc/dormouse/x", "/run", "/.dorm-volumes/0"]) {
        assert!(illegal.parse::<MountPath>().is_err(), "{illegal}");
    }
    assert!("/a".repeat(600).parse::<MountPath>().is_err());
}

#[test]
fn a_part_of_a_volume_does_not_lead_out_of_it() {
    for legal in ["", "a", "a/b", "..a", "a b"] {
        assert!(legal.parse::<SubPath>().is_ok(), "{legal}");
    }
    for illegal in ["/a", "a/", "..", "a/..", ".", "a//b"] {
        assert!(illegal.parse::<SubPath>().is_err(), "{illegal}");
    }
}

#[test]
fn volumes_do_not_lie_in_one_another() {
    assert_eq!(check_attachments(&[attachment("/a", 0), attachment("/ab", 1), attachment("/b/c", 2)]), Ok(()));
    for other in ["/a", "/a/b"] {
        let wrong = check_attachments(&[attachment("/a", 0), attachment(other, 1)]);
        assert!(matches!(wrong, Err(AttachmentError::Nested { .. })), "{other}");
    }
    assert_eq!(check_attachments(&[attachment("/a", 3), attachment("/b", 3)]), Err(AttachmentError::Slot(3)));
    assert_eq!(check_attachments(&[attachment("/a", 16)]), Err(AttachmentError::Slot(16)));
}

#[test]
fn a_free_slot_is_found_until_there_is_none() {
    let mut taken = Vec::new();
    for number in 0..ATTACHMENTS_MAX {
        let slot = free_slot(&taken).expect("free");
        taken.push(attachment(&format!("/v{number}"), slot));
    }
    assert_eq!((free_slot(&taken), check_attachments(&taken)), (None, Ok(())));
}
