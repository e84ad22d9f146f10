//! The numbers that the virtual inputs see. docs/spec/sis8300.md, "Samples of the virtual board".

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

/// What the samples of one channel in one acquisition are made of.
pub(super) fn key(seed: u64, serial: u16, acquisition: u64, channel: u64) -> u64 {
    let of_board = mix(mix(seed.wrapping_add(STEP)).wrapping_add(serial.into()));
    mix(of_board.wrapping_add(acquisition.wrapping_mul(16)).wrapping_add(channel))
}

/// Fills `to` with the bytes from `offset` on of the samples of a key.
pub(super) fn fill(key: u64, offset: u64, to: &mut [u8]) {
    let head = to.len().min((offset.next_multiple_of(8) - offset) as usize);
    let (first, rest) = to.split_at_mut(head);
    for (byte, at) in first.iter_mut().zip(offset..) {
        *byte = byte_at(key, at);
    }
    let mut at = offset + head as u64;
    let mut state = key.wrapping_add((at / 8).wrapping_mul(STEP));
    let mut words = rest.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&mix(state).to_le_bytes());
        state = state.wrapping_add(STEP);
        at += 8;
    }
    for (byte, at) in words.into_remainder().iter_mut().zip(at..) {
        *byte = byte_at(key, at);
    }
}

fn byte_at(key: u64, offset: u64) -> u8 {
    let word = mix(key.wrapping_add((offset / 8).wrapping_mul(STEP)));
    word.to_le_bytes()[(offset % 8) as usize]
}
