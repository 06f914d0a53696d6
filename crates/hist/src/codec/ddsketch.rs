//! The ddsketch format.
