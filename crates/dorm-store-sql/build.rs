//! Builds the crate anew when a migration is added or changed: they are compiled in.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
