//! Small sets of small values, one bit each.

use std::marker::PhantomData;
use std::{fmt, iter};

/// An element of a [`Set`]: a unique number below 16.
pub(crate) trait Element: Copy {
    fn number(self) -> u8;
    fn from_number(number: u8) -> Self;
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Set<T>(u16, PhantomData<T>);

impl<T: Element> Set<T> {
    pub(crate) const EMPTY: Self = Self(0, PhantomData);

    pub(crate) fn of(element: T) -> Self {
        Self(1 << element.number(), PhantomData)
    }

    pub(crate) fn insert(&mut self, element: T) {
        *self = self.with(Self::of(element));
    }

    pub(crate) fn remove(&mut self, element: T) {
        *self = self.without(Self::of(element));
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0, PhantomData)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0, PhantomData)
    }

    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn contains(self, element: T) -> bool {
        self.meets(Self::of(element))
    }

    /// The set with two elements exchanged.
    pub(crate) fn swapped(self, one: T, other: T) -> Self {
        let image = |element: T| match element.number() {
            number if number == one.number() => other,
            number if number == other.number() => one,
            _ => element,
        };
        self.iter().map(image).collect()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = T> {
        let mut left = self.0;
        iter::from_fn(move || {
            let number = u8::try_from(left.trailing_zeros()).ok().filter(|_| left != 0)?;
            left &= left - 1;
            Some(T::from_number(number))
        })
    }
}

impl<T: Element> FromIterator<T> for Set<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        elements.into_iter().fold(Self::EMPTY, |set, element| set.with(Self::of(element)))
    }
}

// Derived implementations would require the same traits of `T`.
impl<T> Copy for Set<T> {}
impl<T> Clone for Set<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element + fmt::Display> fmt::Display for Set<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, element) in self.iter().enumerate() {
            write!(f, "{}{element}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
