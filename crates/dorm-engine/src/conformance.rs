//! The behaviour every engine must show.
