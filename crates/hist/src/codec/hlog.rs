//! The hlog format.
