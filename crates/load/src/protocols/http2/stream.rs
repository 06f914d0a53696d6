//! A stream: one request in flight until the end of its response.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::{HeaderMap, StatusCode};
use protocol::grpc;

use super::failure;
use crate::failure::Failure;

/// A request in flight.
pub(super) struct Http2Stream {
    state: StreamState,
    response_state: Http2Response,
    /// The error that ended it.
    error: Option<h2::Error>,
}

enum StreamState {
    /// Before the response head.
    Head(ResponseFuture),
    /// In the response body or trailers.
    Body(RecvStream),
}

/// State of a response.
pub(super) enum Http2Response {
    Http(StatusCode),
    Grpc(grpc::GrpcResponse),
}

impl Http2Stream {
    pub(super) fn new(response: ResponseFuture, response_state: Http2Response) -> Http2Stream {
        Http2Stream { state: StreamState::Head(response), response_state, error: None }
    }

    /// Detail of the failure.
    pub(super) fn error_detail(&self) -> Option<String> {
        match (&self.error, &self.response_state) {
            (Some(error), _) => Some(error.to_string()),
            (None, Http2Response::Http(status)) => Some(status.to_string()),
            (None, Http2Response::Grpc(response_state)) => response_state.error_detail(),
        }
    }

    fn fail(&mut self, error: h2::Error) -> Poll<Option<Failure>> {
        let failure = failure(&error);
        self.error = Some(error);
        Poll::Ready(Some(failure))
    }

    /// Processes received frames. Returns the outcome at the end.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Failure>> {
        loop {
            match &mut self.state {
                StreamState::Head(response) => match ready!(Pin::new(response).poll(context)) {
                    Ok(response) => {
                        let (head, body) = response.into_parts();
                        self.response_state.head(head.status, &head.headers);
                        self.state = StreamState::Body(body);
                    }
                    Err(error) => return self.fail(error),
                },
                StreamState::Body(body) => match ready!(body.poll_data(context)) {
                    Some(Ok(bytes)) => {
                        self.response_state.data(&bytes);
                        // Opens the window for more; the call fails only if more is released than
                        // was received.
                        let _ = body.flow_control().release_capacity(bytes.len());
                    }
                    Some(Err(error)) if error.reason() != Some(Reason::NO_ERROR) => {
                        return self.fail(error);
                    }
                    // A server that has responded may reject the rest of the request (RFC 9113,
                    // 8.1).
                    Some(Err(_)) => return Poll::Ready(self.response_state.end()),
                    None => {
                        match ready!(body.poll_trailers(context)) {
                            Ok(Some(trailers)) => self.response_state.trailers(&trailers),
                            Ok(None) => {}
                            Err(error) if error.reason() == Some(Reason::NO_ERROR) => {}
                            Err(error) => return self.fail(error),
                        }
                        return Poll::Ready(self.response_state.end());
                    }
                },
            }
        }
    }
}

impl Http2Response {
    pub(super) fn new_http() -> Http2Response {
        Http2Response::Http(StatusCode::OK)
    }

    pub(super) fn new_grpc() -> Http2Response {
        Http2Response::Grpc(grpc::GrpcResponse::default())
    }

    fn head(&mut self, status: StatusCode, headers: &HeaderMap) {
        match self {
            Http2Response::Http(known) => *known = status,
            Http2Response::Grpc(response_state) => response_state.head(status, headers),
        }
    }

    fn data(&mut self, bytes: &[u8]) {
        if let Http2Response::Grpc(response_state) = self {
            response_state.data(bytes);
        }
    }

    fn trailers(&mut self, trailers: &HeaderMap) {
        if let Http2Response::Grpc(response_state) = self {
            response_state.trailers(trailers);
        }
    }

    fn end(&self) -> Option<Failure> {
        match self {
            Http2Response::Http(status) => (status.as_u16() >= 400).then_some(Failure::Status),
            Http2Response::Grpc(response_state) => match response_state.end() {
                Ok(is_error) => is_error.then_some(Failure::Status),
                Err(violation) => Some(violation.into()),
            },
        }
    }
}
