//! One request that is under way, until its answer has come to its end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::{HeaderMap, StatusCode};

use super::failure;
use crate::failure::Failure;
use crate::protocol::grpc;

/// A request that is under way.
pub(super) struct Stream {
    stage: Stage,
    answer: Answer,
    /// Why it did not come to its end.
    error: Option<h2::Error>,
}

enum Stage {
    /// Before the head of the answer.
    Head(ResponseFuture),
    /// In its body, or what comes after that.
    Body(RecvStream),
}

/// What is known of an answer.
pub(super) enum Answer {
    Http(StatusCode),
    Grpc(grpc::Answer),
}

impl Stream {
    pub(super) fn new(response: ResponseFuture, answer: Answer) -> Stream {
        Stream { stage: Stage::Head(response), answer, error: None }
    }

    /// What is known of how it failed.
    pub(super) fn words(&self) -> Option<String> {
        match (&self.error, &self.answer) {
            (Some(error), _) => Some(error.to_string()),
            (None, Answer::Http(status)) => Some(status.to_string()),
            (None, Answer::Grpc(answer)) => answer.words(),
        }
    }

    fn fail(&mut self, error: h2::Error) -> Poll<Option<Failure>> {
        let failure = failure(&error);
        self.error = Some(error);
        Poll::Ready(Some(failure))
    }

    /// Takes what came. With what it ended, if it has.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Failure>> {
        loop {
            match &mut self.stage {
                Stage::Head(response) => match ready!(Pin::new(response).poll(context)) {
                    Ok(response) => {
                        let (head, body) = response.into_parts();
                        self.answer.head(head.status, &head.headers);
                        self.stage = Stage::Body(body);
                    }
                    Err(error) => return self.fail(error),
                },
                Stage::Body(body) => match ready!(body.poll_data(context)) {
                    Some(Ok(bytes)) => {
                        self.answer.data(&bytes);
                        // So that the next may come; an error would be that more is released than came.
                        let _ = body.flow_control().release_capacity(bytes.len());
                    }
                    Some(Err(error)) if error.reason() != Some(Reason::NO_ERROR) => {
                        return self.fail(error);
                    }
                    // Whoever has answered may refuse the rest of the request (RFC 9113, 8.1).
                    Some(Err(_)) => return Poll::Ready(self.answer.end()),
                    None => {
                        match ready!(body.poll_trailers(context)) {
                            Ok(Some(trailers)) => self.answer.trailers(&trailers),
                            Ok(None) => {}
                            Err(error) if error.reason() == Some(Reason::NO_ERROR) => {}
                            Err(error) => return self.fail(error),
                        }
                        return Poll::Ready(self.answer.end());
                    }
                },
            }
        }
    }
}

impl Answer {
    pub(super) fn of_http() -> Answer {
        Answer::Http(StatusCode::OK)
    }

    pub(super) fn of_grpc() -> Answer {
        Answer::Grpc(grpc::Answer::default())
    }

    fn head(&mut self, status: StatusCode, headers: &HeaderMap) {
        match self {
            Answer::Http(known) => *known = status,
            Answer::Grpc(answer) => answer.head(status, headers),
        }
    }

    fn data(&mut self, bytes: &[u8]) {
        if let Answer::Grpc(answer) = self {
            answer.data(bytes);
        }
    }

    fn trailers(&mut self, trailers: &HeaderMap) {
        if let Answer::Grpc(answer) = self {
            answer.trailers(trailers);
        }
    }

    fn end(&self) -> Option<Failure> {
        match self {
            Answer::Http(status) => (status.as_u16() >= 400).then_some(Failure::Status),
            Answer::Grpc(answer) => answer.end(),
        }
    }
}
