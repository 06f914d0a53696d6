//! `axum::routing` with one type of handlers: axum compiles 2 kB for each type, and there are 80.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{self, MethodFilter, MethodRouter};

use crate::context::Context;

/// A handler of GET requests.
pub(crate) fn get<T: 'static>(handler: impl Handler<T, Context>) -> MethodRouter<Context> {
    on(MethodFilter::GET, handler)
}

/// A handler of POST requests.
pub(crate) fn post<T: 'static>(handler: impl Handler<T, Context>) -> MethodRouter<Context> {
    on(MethodFilter::POST, handler)
}

/// A handler of PUT requests.
pub(crate) fn put<T: 'static>(handler: impl Handler<T, Context>) -> MethodRouter<Context> {
    on(MethodFilter::PUT, handler)
}

/// A handler of DELETE requests.
pub(crate) fn delete<T: 'static>(handler: impl Handler<T, Context>) -> MethodRouter<Context> {
    on(MethodFilter::DELETE, handler)
}

/// A handler of requests with a method.
pub(crate) fn on<T: 'static>(
    method: MethodFilter,
    handler: impl Handler<T, Context>,
) -> MethodRouter<Context> {
    let call = move |request, context| -> ResponseFuture {
        Box::pin(handler.clone().call(request, context))
    };
    routing::on(method, AnyHandler(Arc::new(call)))
}

type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler of any type.
#[derive(Clone)]
struct AnyHandler(Arc<dyn Fn(Request, Context) -> ResponseFuture + Send + Sync>);

impl Handler<(), Context> for AnyHandler {
    type Future = ResponseFuture;

    fn call(self, request: Request, context: Context) -> ResponseFuture {
        (self.0)(request, context)
    }
}
