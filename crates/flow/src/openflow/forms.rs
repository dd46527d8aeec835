//! The forms of fields: how one is read and written that is not what its type is by itself.

use super::bytes::{FieldForm, Part, Reader, Tagged, Version, Writer};
use super::fault::Fault;
use super::oxm::Oxm;

/// OpenFlow 1.4 put it where 1.3 has padding.
pub struct In14;

impl<T: Part + Default> FieldForm<T> for In14 {
    fn read(&self, r: &mut Reader<'_>) -> Result<T, Fault> {
        let value = T::read(r)?;
        Ok(if r.version == Version::V13 { T::default() } else { value })
    }
    fn write(&self, value: &T, w: &mut Writer) {
        let value = if w.version == Version::V13 { &T::default() } else { value };
        value.write(w);
    }
    #[cfg(test)]
    fn sample(&self, s: &mut super::sample::Sampler) -> T {
        if s.version() == Version::V13 { T::default() } else { T::sample(s) }
    }
}

/// Its length stands in 16 bits, so many bytes before it.
pub struct LengthBefore(pub usize);

impl<T: Part> FieldForm<T> for LengthBefore {
    fn read(&self, r: &mut Reader<'_>) -> Result<T, Fault> {
        let length = r.behind16(self.0)?;
        T::read(&mut r.part(length.into(), r.short)?)
    }
    fn write(&self, value: &T, w: &mut Writer) {
        let start = w.at();
        value.write(w);
        w.measure_at(start, start - self.0);
    }
}

/// A list that begins at a multiple of eight bytes, unless it is empty.
pub struct Aligned;

impl<T: Part> FieldForm<Vec<T>> for Aligned {
    fn read(&self, r: &mut Reader<'_>) -> Result<Vec<T>, Fault> {
        if r.left() > 0 {
            r.align()?;
        }
        Part::read(r)
    }
    fn write(&self, value: &Vec<T>, w: &mut Writer) {
        if !value.is_empty() {
            w.align(0);
        }
        value.write(w);
    }
}

/// A field without mask that is padded inside the action.
pub struct Padded;

impl FieldForm<Oxm> for Padded {
    fn read(&self, r: &mut Reader<'_>) -> Result<Oxm, Fault> {
        let field = Oxm::read(r)?;
        // Everything after the field is padding of the action, less than eight bytes of it.
        r.align()?;
        Ok(field)
    }
    #[cfg(test)]
    fn sample(&self, s: &mut super::sample::Sampler) -> Oxm {
        Oxm { mask: None, ..Oxm::sample(s) }
    }
}

/// Properties of these numbers stand there without type and length, as OpenFlow 1.3 has them; where one is missing, these bytes.
pub struct Fixed(pub &'static [u16], pub &'static [u8]);

impl<T: Tagged + Part> FieldForm<Vec<T>> for Fixed {
    fn read(&self, r: &mut Reader<'_>) -> Result<Vec<T>, Fault> {
        let unknown = r.short;
        self.0.iter().map(|number| T::read_body(*number, r, unknown)).collect()
    }
    fn write(&self, value: &Vec<T>, w: &mut Writer) {
        for number in self.0 {
            match value.iter().find(|property| property.number() == *number) {
                Some(property) => property.write_body(w),
                None => w.put(self.1),
            }
        }
    }
    #[cfg(test)]
    fn sample(&self, s: &mut super::sample::Sampler) -> Vec<T> {
        self.0.iter().map(|number| T::sample_of(*number, s)).collect()
    }
}
