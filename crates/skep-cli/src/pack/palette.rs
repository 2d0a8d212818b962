//! Colours of programs. A program has the same colour in all pictures unless another name of the picture takes it,
//! and its copies differ a little in brightness, so that neighbours can be told apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

/// Hues for programs, in degrees, evenly distinct to the eye; each is used bright and dark.
const HUES: [u16; 12] = [4, 26, 44, 62, 96, 150, 176, 198, 220, 258, 290, 326];
const COLOURS: usize = 2 * HUES.len();
/// Shades of a colour, for adjacent copies.
const SHADES: usize = 3;

/// The colour of each program.
pub(super) struct Palette {
    slots: BTreeMap<String, usize>,
}

impl Palette {
    /// The colour depends only on the name, unless another name of the picture has the same one.
    pub(super) fn new<'a>(programs: impl IntoIterator<Item = &'a str>) -> Self {
        let mut slots = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for program in programs {
            if slots.contains_key(program) {
                continue;
            }
            let wanted = hash(program) as usize % COLOURS;
            let free = (0..COLOURS).map(|step| (wanted + step) % COLOURS).find(|slot| !taken.contains(slot));
            let slot = free.unwrap_or(wanted);
            taken.insert(slot);
            slots.insert(program.to_owned(), slot);
        }
        Self { slots }
    }

    /// The CSS class of a program's text; `text` is its index in the pack.
    pub(super) fn class(&self, program: &str, text: usize) -> Option<String> {
        self.slots.get(program).map(|slot| format!("p{slot}s{}", text % SHADES))
    }

    /// The programs with a colour.
    pub(super) fn programs(&self) -> impl Iterator<Item = &str> {
        self.slots.keys().map(String::as_str)
    }

    /// The CSS rules of the classes.
    pub(super) fn style(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        for slot in self.slots.values().collect::<BTreeSet<_>>() {
            for shade in 0..SHADES {
                let hue = HUES[slot % HUES.len()];
                let (saturation, middle) = if *slot < HUES.len() { (0.65, 0.56) } else { (0.48, 0.34) };
                let lightness = middle + (shade as f64 - 1.0) * 0.06;
                let [r, g, b] = rgb(f64::from(hue), saturation, lightness);
                write!(out, ".p{slot}s{shade}{{fill:#{r:02x}{g:02x}{b:02x}}}")?;
            }
        }
        Ok(out)
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
fn hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    hash ^ hash >> 32
}

/// Converts hue in degrees, saturation and lightness (CSS Color Module Level 4, section 7.1).
fn rgb(hue: f64, saturation: f64, lightness: f64) -> [u8; 3] {
    [0.0, 8.0, 4.0].map(|n| {
        let k = (n + hue / 30.0) % 12.0;
        let a = saturation * lightness.min(1.0 - lightness);
        let part = lightness - a * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (part * 255.0).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_copies_differ() {
        let palette = Palette::new(["firewall"]);
        assert_ne!(palette.class("firewall", 0), palette.class("firewall", 1));
        assert_eq!(palette.class("somebody else", 0), None);
    }

    #[test]
    fn a_name_keeps_its_colour_unless_another_takes_it() {
        let (alone, together) =
            (Palette::new(["firewall"]), Palette::new(["balancer", "firewall", "remark"]));
        assert_eq!(alone.class("firewall", 0), together.class("firewall", 0));
    }

    #[test]
    fn names_share_no_colour_while_some_are_free() {
        let names: Vec<String> = (0..=COLOURS).map(|number| format!("program {number}")).collect();
        let taken = |count| {
            let palette = Palette::new(names[..count].iter().map(String::as_str));
            palette.slots.into_values().collect::<BTreeSet<_>>().len()
        };
        assert_eq!((taken(COLOURS), taken(COLOURS + 1)), (COLOURS, COLOURS));
    }

    #[test]
    fn colours_are_those_of_the_specification() {
        assert_eq!(rgb(0.0, 1.0, 0.5), [255, 0, 0]);
        assert_eq!(rgb(120.0, 1.0, 0.25), [0, 128, 0]);
        assert_eq!(rgb(240.0, 0.5, 0.75), [159, 159, 223]);
    }
}
