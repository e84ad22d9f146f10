//! `tune` on devices whose speed follows a law that the lab's models know: what is found is what was planted. docs/tune.md.
