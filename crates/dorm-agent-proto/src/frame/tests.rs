use proptest::prelude::*;

use super::{Assembler, Decoder, Frame, HEADER, Kind, PAYLOAD_MAX, Part, encode, hello, resync};
use crate::message::{Nonce, Resync};

const NONCE: Nonce = Nonce([7; 16]);

fn begin(generation: u64) -> Resync {
    Resync { nonce: NONCE, generation, version: crate::VERSION }
}

fn in_step_agent() -> Decoder {
    let mut decoder = Decoder::for_agent();
    decoder.push(&resync(&begin(1)));
    assert_eq!(decoder.next_frame().unwrap().kind, Kind::Resync);
    decoder
}

fn drain(decoder: &mut Decoder) -> Vec<Frame> {
    std::iter::from_fn(|| decoder.next_frame()).collect()
}

#[test]
fn a_long_message_comes_in_parts_and_is_put_together() {
    let message: Vec<u8> = (0..PAYLOAD_MAX * 2 + 5).map(|at| (at % 251) as u8).collect();
    let mut bytes = Vec::new();
    encode(&mut bytes, Kind::Request, 9, &message);
    let mut decoder = in_step_agent();
    decoder.push(&bytes);
    let frames = drain(&mut decoder);
    assert_eq!(frames.iter().map(|frame| frame.part).collect::<Vec<_>>(), [Part::More, Part::More, Part::Last]);
    let mut assembler = Assembler::within(crate::REQUEST_MAX);
    let whole = frames.into_iter().find_map(|frame| assembler.push(frame.part, frame.payload).unwrap());
    assert_eq!(whole.unwrap(), message);
}

#[test]
fn a_message_without_end_is_refused() {
    let mut assembler = Assembler::within(crate::REQUEST_MAX);
    let refused =
        (0..=crate::REQUEST_MAX / PAYLOAD_MAX).find_map(|_| assembler.push(Part::More, vec![0; PAYLOAD_MAX]).err());
    assert!(refused.is_some());
}

#[test]
fn the_host_drops_everything_before_its_own_hello() {
    let mut stale = Vec::new();
    encode(&mut stale, Kind::Data, 4, b"from before");
    stale.extend(hello(Nonce([8; 16]), b"{}"));
    stale.truncate(stale.len() - 1);
    let mut decoder = Decoder::for_host(NONCE);
    decoder.push(&stale);
    assert!(decoder.next_frame().is_none());
    decoder.push(&hello(NONCE, b"{}"));
    let frames = drain(&mut decoder);
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].kind, Kind::Hello);
    assert_eq!(frames[0].payload, [&NONCE.0[..], b"{}"].concat());
}

#[test]
fn a_resync_inside_a_cut_frame_does_not_come_out_of_it() {
    let forged = resync(&begin(666))[HEADER + PAYLOAD_MAX + 4..].to_vec();
    let mut frame = Vec::new();
    encode(&mut frame, Kind::Data, 3, &forged);
    for cut in 1..frame.len() {
        let mut decoder = in_step_agent();
        decoder.push(&frame[..cut]);
        decoder.push(&resync(&begin(2)));
        let frames = drain(&mut decoder);
        assert_eq!(frames.len(), 1, "cut at {cut}");
        assert_eq!(Resync::from_bytes(&frames[0].payload).unwrap().generation, 2, "cut at {cut}");
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    (3_u8..=9).prop_map(|byte| Kind::from_byte(byte).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_come_out_as_they_went_in(
        frames in prop::collection::vec((kind(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..2000)), 0..12),
        step in 1_usize..3000,
    ) {
        let mut bytes = Vec::new();
        for (kind, channel, payload) in &frames {
            encode(&mut bytes, *kind, *channel, payload);
        }
        let mut decoder = in_step_agent();
        let mut seen = Vec::new();
        for chunk in bytes.chunks(step) {
            decoder.push(chunk);
            seen.extend(drain(&mut decoder).into_iter().map(|frame| (frame.kind, frame.channel, frame.payload)));
        }
        prop_assert_eq!(seen, frames);
    }

    #[test]
    fn a_resync_is_found_after_any_cut_and_any_garbage(
        payload in prop::collection::vec(any::<u8>(), 0..PAYLOAD_MAX),
        garbage in prop::collection::vec(any::<u8>(), 0..300),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut frame = Vec::new();
        encode(&mut frame, Kind::Data, 3, &payload);
        frame.truncate(cut.index(frame.len()));
        let mut decoder = in_step_agent();
        decoder.push(&frame);
        decoder.push(&resync(&begin(2)));
        let frames = drain(&mut decoder);
        prop_assert_eq!(frames.last().and_then(|frame| Resync::from_bytes(&frame.payload)), Some(begin(2)));
        prop_assert_eq!(frames.len(), 1);

        let mut decoder = in_step_agent();
        decoder.push(&garbage);
        decoder.push(&resync(&begin(3)));
        let frames = drain(&mut decoder);
        prop_assert_eq!(frames.last().and_then(|frame| Resync::from_bytes(&frame.payload)), Some(begin(3)));
    }
}
