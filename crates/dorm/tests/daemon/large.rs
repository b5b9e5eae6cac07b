//! Much output and large files.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use reqwest::{Body, Method};
use serde_json::json;

use crate::place::{Counter, Place};

const MEBIBYTE: usize = 1 << 20;

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn output_that_nobody_reads_stops_nobody() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base" })).await;
    let id = counter.id.clone();
    let before = resident_kib(daemon.pid());
    let flood = json!({ "argv": ["sh", "-c", "head -c 104857600 /dev/zero; echo end"] });
    let started = daemon.post(&format!("/sandboxes/{id}/processes"), flood).await.unwrap();
    let process = started["process"].as_u64().unwrap();
    let path = format!("/sandboxes/{id}/processes/{process}/wait");
    let ended = daemon.request(Method::GET, &path).timeout(Duration::from_secs(300)).send().await.unwrap();
    assert!(ended.status().is_success(), "{}", ended.text().await.unwrap());
    assert!(resident_kib(daemon.pid()) < before + 32 * 1024, "the daemon keeps none of it");
    counter.is_whole(daemon).await;
    place.end(&[]).await;
}

/// A pattern of two gibibytes in which each block contains its number.
fn block(number: usize) -> Bytes {
    let word = (number as u64).to_le_bytes();
    Bytes::from(word.repeat(MEBIBYTE / word.len()))
}

#[tokio::test]
async fn two_gibibytes_pass_both_ways_without_growing_the_daemon() {
    const BLOCKS: usize = 2048;
    let place = Place::new();
    let daemon = place.daemon();
    let resources = json!({ "disk_bytes": 4u64 << 30, "memory_bytes": 512 << 20 });
    let id = daemon.create(json!({ "name": "web", "image": "base", "resources": resources })).await.unwrap();
    let before = resident_kib(daemon.pid());
    let body = futures_util::stream::iter((0..BLOCKS).map(|number| Ok::<_, std::io::Error>(block(number))));
    let path = format!("/sandboxes/{id}/files?path=/root/large");
    let sent = daemon.request(Method::PUT, &path).body(Body::wrap_stream(body)).send().await.unwrap();
    assert!(sent.status().is_success(), "{}", sent.text().await.unwrap());
    let answer = daemon.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(answer.content_length(), Some((BLOCKS * MEBIBYTE) as u64));
    let (mut number, mut rest) = (0, Vec::new());
    let mut body = answer.bytes_stream();
    while let Some(part) = body.next().await {
        rest.extend_from_slice(&part.unwrap());
        while rest.len() >= MEBIBYTE {
            let tail = rest.split_off(MEBIBYTE);
            assert!(rest == block(number), "block {number}");
            (number, rest) = (number + 1, tail);
        }
    }
    assert_eq!((number, rest.len()), (BLOCKS, 0));
    assert!(resident_kib(daemon.pid()) < before + 64 * 1024, "the daemon keeps none of it");
    place.end(&["memory pressure"]).await;
}
