//! A timer or work queue: its element, and what is called.

use crate::dispatch::Connected;
use skep_abi::SpecialKind;
use skep_interp::Interpreter;
use skep_maps::Map;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Which clock a timer counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// By the clock since the system started; with or without the time that it was suspended.
    Timer,
    /// By the wall's clock.
    WallTimer,
    /// None: a work queue, which calls as soon as it is started.
    Work,
}

impl Flavour {
    /// The field of the value.
    fn field(self) -> SpecialKind {
        match self {
            Self::Timer | Self::WallTimer => SpecialKind::Timer,
            Self::Work => SpecialKind::Workqueue,
        }
    }
}

/// A function that a program passed to a helper, as its engine calls it.
pub(crate) struct Function {
    pub(crate) entry: Entrance,
    /// The address of the interpreter that runs the program.
    interpreter: Option<usize>,
}

#[derive(Clone, Copy)]
pub(crate) enum Entrance {
    /// The address of compiled code, a [`skep_abi::HelperFn`].
    Compiled(u64),
    /// The interpreter's number.
    Interpreted(u64),
}

impl Function {
    pub(crate) fn new(number: u64, interpreter: Option<&Interpreter>) -> Self {
        let interpreter = interpreter.map(|interpreter| std::ptr::from_ref(interpreter).addr());
        let entry = match interpreter {
            None => Entrance::Compiled(number),
            Some(_) => Entrance::Interpreted(number),
        };
        Self { entry, interpreter }
    }

    pub(super) fn place(&self) -> Within {
        match (self.entry, self.interpreter) {
            (_, Some(interpreter)) => Within::Itself(interpreter),
            (Entrance::Compiled(address) | Entrance::Interpreted(address), None) => {
                Within::Code(address as usize)
            }
        }
    }
}

/// An address that tells whose function it is.
#[derive(Clone, Copy)]
pub(super) enum Within {
    /// In the program's code.
    Code(usize),
    /// In the program's [`Connected`], which has its interpreter.
    Itself(usize),
}

/// What an entry calls.
#[derive(Clone, Copy)]
pub(super) struct Callback {
    /// The address of the program, which is held.
    pub(super) program: usize,
    pub(super) function: Entrance,
}

/// A program with callbacks.
pub(super) struct Held {
    pub(super) program: Arc<Connected>,
    /// The number of entries that call it.
    pub(super) callbacks: usize,
}

pub(super) struct Entry {
    pub(super) map: Weak<Map>,
    pub(super) handle: u64,
    pub(super) place: ElementPlace,
    pub(super) flavour: Flavour,
    pub(super) callback: Option<Callback>,
    /// Where it is in the queue.
    pub(super) armed: Option<super::Place>,
}

/// Where an element was found.
#[derive(Clone)]
pub(super) struct ElementPlace {
    /// The key, in whole words.
    pub(super) key: Box<[u64]>,
    /// The address of the value.
    pub(super) value: usize,
    /// The offset of the field in the value.
    offset: usize,
}

impl Entry {
    /// `None` if the map has no such field.
    ///
    /// # Safety
    ///
    /// The field is one of that map's, in a section that the thread is in.
    pub(super) unsafe fn new(map: &Arc<Map>, field: *mut u8, flavour: Flavour) -> Option<Self> {
        let offset = map.numbered_field(flavour.field())?;
        let value = field.wrapping_sub(offset);
        let mut key = vec![0u64; (map.def().key_size as usize).div_ceil(8)].into_boxed_slice();
        // SAFETY: the caller's promise; the key has the map's size.
        if !unsafe { map.key_at(value, key.as_mut_ptr().cast()) } {
            return None;
        }
        let place = ElementPlace { key, value: value.expose_provenance(), offset };
        let (map, handle) = (Arc::downgrade(map), map.link().handle);
        Some(Self { map, handle, place, flavour, callback: None, armed: None })
    }

    pub(super) fn place(&self) -> ElementPlace {
        self.place.clone()
    }

    /// As [`ElementPlace::is_at`].
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn is_at(&self, map: &Map, cpu: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.place.is_at(map, cpu) }
    }
}

impl ElementPlace {
    /// Whether the element is still the key's.
    ///
    /// # Safety
    ///
    /// The thread is in a section of the map's domain, as that virtual CPU.
    pub(super) unsafe fn is_at(&self, map: &Map, cpu: u32) -> bool {
        // SAFETY: the caller's promise; the key has the map's size.
        unsafe { map.lookup_ptr(self.key.as_ptr().cast(), cpu) }.addr() == self.value
    }

    /// Whether the element is still the key's, and its field has that number.
    ///
    /// # Safety
    ///
    /// As for [`is_at`](Self::is_at).
    pub(super) unsafe fn has(&self, number: u64, map: &Map, cpu: u32) -> bool {
        // SAFETY: the caller's promise; the address was just found, and the field is in the value.
        unsafe {
            self.is_at(map, cpu)
                && Map::number_at(
                    std::ptr::with_exposed_provenance_mut::<u8>(self.value).wrapping_add(self.offset),
                )
                .load(Ordering::Relaxed)
                    == number
        }
    }
}
