//! Misuse that the types reject, each next to the nearest valid use, so that exactly one line does not compile.
//! Compiled for doctests only.

/// A draft cannot be written after it has become code.
///
/// ```
/// # fn main() -> Result<(), skep_text::Error> {
/// # let arena = skep_text::Arena::new(skep_text::Config::new())?;
/// let mut draft = arena.draft(32)?;
/// draft.bytes_mut()[0] = 0xcc;
/// let text = draft.finalize()?;
/// # drop(text);
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0382
/// # fn main() -> Result<(), skep_text::Error> {
/// # let arena = skep_text::Arena::new(skep_text::Config::new())?;
/// let mut draft = arena.draft(32)?;
/// let text = draft.finalize()?;
/// draft.bytes_mut()[0] = 0xcc; // moved
/// # drop(text);
/// # Ok(())
/// # }
/// ```
struct WritingAFinalizedDraft;

/// A draft becomes code once, also as one of several.
///
/// ```compile_fail,E0382
/// # fn main() -> Result<(), skep_text::Error> {
/// # let arena = skep_text::Arena::new(skep_text::Config::new())?;
/// let draft = arena.draft(32)?;
/// let texts = skep_text::Draft::finalize_all([draft])?;
/// let text = draft.finalize()?; // moved
/// # Ok(())
/// # }
/// ```
struct FinalizingTwice;

/// Code can be read, not written.
///
/// ```
/// # fn main() -> Result<(), skep_text::Error> {
/// # let arena = skep_text::Arena::new(skep_text::Config::new())?;
/// let mut text = arena.draft(32)?.finalize()?;
/// assert_eq!(text.bytes().len(), 32);
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # fn main() -> Result<(), skep_text::Error> {
/// # let arena = skep_text::Arena::new(skep_text::Config::new())?;
/// let mut text = arena.draft(32)?.finalize()?;
/// text.bytes_mut()[0] = 0xcc; // no such method
/// # Ok(())
/// # }
/// ```
struct WritingAText;

/// A text cannot be retired between a poke and the end of its batch: cache maintenance would apply to other code.
///
/// ```
/// # fn main() -> Result<(), skep_text::Error> {
/// # let arena = skep_text::Arena::new(skep_text::Config::new())?;
/// let text = arena.draft(32)?.finalize()?;
/// let traps = text.bytes();
/// let mut pokes = arena.pokes()?;
/// // SAFETY: no thread runs the text.
/// unsafe { pokes.copy(&text, 0, &traps) }?;
/// pokes.finish()?;
/// drop(text);
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0505
/// # fn main() -> Result<(), skep_text::Error> {
/// # let arena = skep_text::Arena::new(skep_text::Config::new())?;
/// let text = arena.draft(32)?.finalize()?;
/// let traps = text.bytes();
/// let mut pokes = arena.pokes()?;
/// // SAFETY: no thread runs the text.
/// unsafe { pokes.copy(&text, 0, &traps) }?;
/// drop(text); // borrowed
/// pokes.finish()?;
/// # Ok(())
/// # }
/// ```
struct RetiringAPokedText;
