use super::*;
use crate::ids::SandboxId;
use crate::volume::SubPath;

fn volume(number: u8) -> VolumeId {
    VolumeId::from_random([number; 20])
}

fn attachment(path: &str, slot: u8) -> Attachment {
    let path = path.parse().expect("path");
    Attachment { volume: volume(1), path, access: Access::Write, subpath: SubPath::default(), slot }
}

fn lease(sandbox: u8, access: Access) -> Lease {
    let run = RunId { sandbox: SandboxId::from_random([sandbox; 20]), generation: 1 };
    Lease { volume: volume(1), run, name: Some("web".parse().expect("name")), access }
}

#[test]
fn a_second_writer_is_refused_by_name_unless_many_may_write() {
    let (write, read) = (Access::Write, Access::Read);
    let held = [lease(2, read), lease(3, write)];
    let refused = grant(Writers::One, &lease(4, write), &held).expect_err("refused");
    assert_eq!(refused.lease, lease(3, write));
    assert!(refused.to_string().contains("sandbox web ("), "{refused}");
    assert_eq!(grant(Writers::Many, &lease(4, write), &held), Ok(()));
    assert_eq!(grant(Writers::One, &lease(4, read), &held), Ok(()));
    assert_eq!(grant(Writers::One, &lease(3, write), &held), Ok(()), "its own lease is none of another's");
    let elsewhere = Lease { volume: volume(9), ..lease(4, write) };
    assert_eq!(grant(Writers::One, &elsewhere, &held), Ok(()));
}

#[test]
fn leases_last_from_before_a_run_until_it_is_given_up() {
    for (state, mut sandbox) in crate::table::sandboxes(true) {
        sandbox.spec.attachments = vec![attachment("/data", 0)];
        let is_over = state.starts_with("suspended") || state.starts_with("terminated");
        let expected = !is_over || state == "suspended to rewind";
        assert_eq!(!leases(&sandbox).is_empty(), expected, "{state}");
    }
}
