// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures of the C ABI that grow at their end. A program says how large the one is that it was
//! compiled with; the library has its own, of the same beginning.
//!
//! | | the program's is smaller | the program's is larger |
//! |---|---|---|
//! | the library fills it | as much as fits | the rest is zeros |
//! | the library reads it | the rest counts as zeros | the rest must be zeros: else E2BIG |
//!
//! So it is in the kernel's `clone3(2)` and `sched_setattr(2)`. A 0 therefore means in every field
//! that it is not set, or not counted.

use std::mem::MaybeUninit;

use crate::error::{Error, Result};

/// No structure becomes larger: what is, was no size. A page, as in the kernel.
const MOST: usize = 4096;

/// A structure of the C ABI that grows.
///
/// # Safety
/// Any bytes are a value of the type, zeros too, and it has no holes.
pub(crate) unsafe trait Grows: Copy {
    /// As C calls it.
    const NAME: &str;
}

/// How much of a program's structure of `size` bytes is also ours.
fn both<T: Grows>(at: *const T, size: usize) -> Result<usize> {
    if at.is_null() {
        return Err(Error::new(libc::EFAULT, format!("the {} is NULL", T::NAME)));
    }
    if size == 0 || size > MOST || !size.is_multiple_of(align_of::<T>()) {
        let text = format!("{size} is no size of a {}", T::NAME);
        return Err(Error::new(libc::EINVAL, text));
    }
    Ok(size.min(size_of::<T>()))
}

/// Fills a program's structure with what `value` answers, and leaves it as it is where that fails.
///
/// # Safety
/// `to` is null or has room for `size` bytes.
pub(crate) unsafe fn fill<T: Grows>(
    to: *mut T,
    size: usize,
    value: impl FnOnce() -> Result<T>,
) -> Result<()> {
    let both = both(to, size)?;
    let value = value()?;
    let to = to.cast::<u8>();
    // SAFETY: `both` bytes are in ours and in the program's, and the rest is the program's.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to, both);
        to.add(both).write_bytes(0, size - both);
    }
    Ok(())
}

/// What a program's structure says.
///
/// # Safety
/// `from` is null or a structure of `size` bytes.
pub(crate) unsafe fn read<T: Grows>(from: *const T, size: usize) -> Result<T> {
    let both = both(from, size)?;
    let mut value = MaybeUninit::<T>::zeroed();
    let bytes = from.cast::<u8>();
    // SAFETY: As above. Its bytes were written by the program, or the caller has broken its word.
    let rest = unsafe {
        std::ptr::copy_nonoverlapping(bytes, value.as_mut_ptr().cast::<u8>(), both);
        std::slice::from_raw_parts(bytes.add(both), size - both)
    };
    if rest.iter().any(|&byte| byte != 0) {
        let text = format!(
            "the {} asks for something that this library, {}, does not know: of its {size} bytes it \
             knows {both}",
            T::NAME,
            crate::VERSION
        );
        return Err(Error::new(libc::E2BIG, text));
    }
    // SAFETY: Any bytes are a value, and all of them are written.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the library has it.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Ours {
        first: u32,
        second: u32,
        third: u64,
    }

    // SAFETY: Numbers without holes.
    unsafe impl Grows for Ours {
        const NAME: &str = "struct ours";
    }

    const VALUE: Ours = Ours { first: 1, second: 2, third: 3 };

    /// Memory of a program, all of it 0xff.
    fn memory() -> [u64; 4] {
        [u64::MAX; 4]
    }

    fn filled(to: &mut [u64; 4], size: usize) -> Result<()> {
        // SAFETY: No more is said than there is, or it is refused.
        unsafe { fill(to.as_mut_ptr().cast(), size, || Ok(VALUE)) }
    }

    fn had(from: &[u64], size: usize) -> Result<Ours> {
        // SAFETY: No more is said than there is, or it is refused.
        unsafe { read(from.as_ptr().cast(), size) }
    }

    #[test]
    fn an_older_program_gets_what_it_has_room_for() {
        let (mut older, mut same) = (memory(), memory());
        filled(&mut older, 8).unwrap();
        filled(&mut same, size_of::<Ours>()).unwrap();
        assert_eq!(older[1..], memory()[1..], "behind its end nothing is written");
        assert_eq!((older[0], same[0]), (same[0], u64::from_ne_bytes([1, 0, 0, 0, 2, 0, 0, 0])));
        assert_eq!(same[1..], [3, u64::MAX, u64::MAX]);
    }

    #[test]
    fn a_newer_program_finds_zeros() {
        let mut newer = memory();
        filled(&mut newer, 24).unwrap();
        assert_eq!(newer[1..], [3, 0, u64::MAX]);
    }

    #[test]
    fn what_fails_leaves_it_as_it_was() {
        let mut at = memory();
        // SAFETY: So much is there.
        let failed = unsafe {
            fill::<Ours>(at.as_mut_ptr().cast(), 32, || Err(Error::new(libc::ENOENT, "no")))
        };
        assert_eq!((failed.unwrap_err().errno(), at), (libc::ENOENT, memory()));
    }

    #[test]
    fn what_is_asked_for_is_known() {
        let first = u64::from_ne_bytes([1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(had(&[first, 3], 16).unwrap(), VALUE);
        assert_eq!(had(&[first, 3], 8).unwrap(), Ours { third: 0, ..VALUE }, "an older program");
        assert_eq!(had(&[first, 3, 0, 0], 32).unwrap(), VALUE, "a newer one that asks no more");
        for newer in [[first, 3, 1, 0], [first, 3, 0, 1 << 63]] {
            let error = had(&newer, 32).unwrap_err();
            assert_eq!(error.errno(), libc::E2BIG);
            assert!(error.text().contains("struct ours"), "{error}");
        }
    }

    #[test]
    fn sizes_that_are_none_are_refused() {
        let mut at = memory();
        for size in [0, 1, 15, 4104, usize::MAX] {
            assert_eq!(filled(&mut at, size).unwrap_err().errno(), libc::EINVAL, "{size}");
            assert_eq!(had(&at, size).unwrap_err().errno(), libc::EINVAL, "{size}");
        }
        assert_eq!(at, memory());
        // SAFETY: Null is refused.
        let null = unsafe { read::<Ours>(std::ptr::null(), 16) };
        assert_eq!(null.unwrap_err().errno(), libc::EFAULT);
    }
}
