//! Vectors: all sizes, and registers from both ends.

use super::*;

/// Words with their intended assembly text.
fn vectors() -> Vec<(Word, String)> {
    let mut all = Vec::new();
    let pairs = (0..32).map(|number| (number, (number * 7 + 3) % 32));
    for (a, b) in pairs {
        let (vd, vn, reg) = (Vector(a), Vector(b), Gpr::numbered(b));
        let x = if b == 31 { "xzr".to_owned() } else { format!("x{b}") };
        let base = if b == 31 { "sp".to_owned() } else { x.clone() };
        all.push((load_vector(vd, reg), format!("ldr q{a}, [{base}], #16")));
        all.push((store_vector(vd, reg), format!("str q{a}, [{base}], #16")));
        all.push((clear(vd), format!("movi v{a}.2d, #0")));
        for (size, lanes) in [(Size::B1, "16b"), (Size::B2, "8h"), (Size::B4, "4s"), (Size::B8, "2d")] {
            let from = if size == Size::B8 { x.clone() } else { x.replacen('x', "w", 1) };
            all.push((spread(size, vd, reg), format!("dup v{a}.{lanes}, {from}")));
        }
        for (size, lanes, wide) in [(Size::B1, "16b", "8h"), (Size::B2, "8h", "4s"), (Size::B4, "4s", "2d")] {
            let operands = format!("v{a}.{wide}, v{b}.{lanes}");
            all.push((add_neighbours(size, vd, vn), format!("uaddlp {operands}")));
            all.push((accumulate_neighbours(size, vd, vn), format!("uadalp {operands}")));
        }
        all.push((add_halves(vd, vn), format!("addp d{a}, v{b}.2d")));
        all.push((
            lower_half(Gpr::numbered(a), vn),
            match a {
                31 => format!("fmov xzr, d{b}"),
                _ => format!("fmov x{a}, d{b}"),
            },
        ));
    }
    all
}

#[test]
fn llvm_assembles_the_intended_vectors_to_the_same_words() {
    let cases = vectors();
    let texts: String = cases.iter().map(|(_, text)| format!("{text}\n")).collect();
    let flags = ["-triple=aarch64", "-show-encoding"];
    let Some(lines) = llvm::lines("the aarch64 encoders of vectors", &flags, texts) else { return };
    let theirs = llvm::encodings(&lines);
    assert_eq!(theirs.len(), cases.len());
    for ((word, meant), theirs) in cases.iter().zip(&theirs) {
        assert_eq!(theirs[..], word.0.to_le_bytes(), "{meant}");
    }
}
