//! Which series there are, and which of them a selector picks.
