//! BTF parser: types and offsets of the running kernel (`/sys/kernel/btf/vmlinux`).
//!
//! It reads only what the programs need: ids of named types, byte offsets of members, values of
//! enumerators. All offsets and lengths are checked against the size of the file; type chains are
//! bounded by [`DEPTH_MAX`]. Source: kernel, Documentation/bpf/btf.rst and
//! include/uapi/linux/btf.h.

/// Longest chain of referenced or nested types on the way to a member.
const DEPTH_MAX: u32 = 16;
const MAGIC: u16 = 0xeb9f;

const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_ENUM64: u32 = 19;

/// Kernel type information (BTF).
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    strings: std::ops::Range<usize>,
    /// Offset of each type; type 0 is `void` and has none.
    types: Vec<u32>,
}

/// BTF type record.
#[derive(Clone, Copy, Debug)]
struct BtfType {
    name: u32,
    kind: u32,
    /// Number of members, enumerators or parameters.
    count: usize,
    /// Members have their size in bits beside their offset (`kind_flag`).
    has_bit_fields: bool,
    /// Offset of the kind-specific data.
    at: usize,
}

impl Btf {
    /// Parses the header and indexes all types.
    pub fn parse(bytes: Vec<u8>) -> Result<Btf, String> {
        let short = || "kernel BTF is truncated".to_owned();
        if bytes.get(..2) != Some(&MAGIC.to_le_bytes()) {
            return Err("kernel BTF has an invalid header".to_owned());
        }
        let header = |at: usize| word(&bytes, at).map(|n| n as usize).ok_or_else(short);
        let base = header(4)?;
        let section = |offset: usize, length: usize| {
            let start = base.checked_add(offset).ok_or_else(short)?;
            let end = start.checked_add(length).filter(|&end| end <= bytes.len());
            Ok::<_, String>(start..end.ok_or_else(short)?)
        };
        let types = section(header(8)?, header(12)?)?;
        let strings = section(header(16)?, header(20)?)?;
        let mut places = vec![0];
        let mut at = types.start;
        while at < types.end {
            places.push(u32::try_from(at).map_err(|_| short())?);
            let head = read_type(&bytes, at).ok_or_else(short)?;
            at = head.at
                + type_tail_bytes(head.kind, head.count)
                    .ok_or_else(|| format!("kernel BTF has unknown type kind {}", head.kind))?;
        }
        Ok(Btf { strings, types: places, bytes })
    }

    fn get(&self, id: u32) -> Option<BtfType> {
        let at = *self.types.get(id as usize)? as usize;
        (at != 0).then(|| read_type(&self.bytes, at))?
    }

    fn is_named(&self, name: u32, expected: &str) -> bool {
        let rest = self.bytes.get(self.strings.clone()).and_then(|all| all.get(name as usize..));
        rest.is_some_and(|rest| {
            rest.starts_with(expected.as_bytes()) && rest.get(expected.len()) == Some(&0)
        })
    }

    fn find(&self, kinds: &[u32], name: &str) -> Option<u32> {
        (1..self.types.len() as u32).find(|&id| {
            self.get(id).is_some_and(|t| kinds.contains(&t.kind) && self.is_named(t.name, name))
        })
    }

    /// BTF id to attach a program to a tracepoint.
    pub fn tracepoint(&self, name: &str) -> Result<u32, String> {
        let type_name = format!("btf_trace_{name}");
        let found = self.find(&[KIND_TYPEDEF], &type_name);
        found.ok_or_else(|| format!("kernel has no tracepoint {name}"))
    }

    /// BTF id to attach a program to a function.
    pub fn function(&self, name: &str) -> Result<u32, String> {
        let found = self.find(&[KIND_FUNC], name);
        found.ok_or_else(|| format!("kernel BTF has no function {name}"))
    }

    /// Size of the struct `name` in bytes.
    pub fn size(&self, name: &str) -> Result<u32, String> {
        let found = self.find(&[KIND_STRUCT], name).and_then(|id| self.get(id));
        // Structs have their size in the field that holds the type id of other kinds.
        let size = found.and_then(|found| word(&self.bytes, found.at - 4));
        size.ok_or_else(|| format!("kernel BTF has no struct {name}"))
    }

    /// BTF id of a per-CPU variable.
    pub fn variable(&self, name: &str) -> Result<u32, String> {
        let found = self.find(&[KIND_VAR], name);
        found.ok_or_else(|| format!("kernel BTF has no variable {name}"))
    }

    /// Offset in bytes of `members` (each nested in the previous one) in the struct `name`.
    pub fn offset(&self, name: &str, members: &str) -> Result<i16, String> {
        let missing = || format!("kernel struct {name} has no member {members}");
        let mut id = self
            .find(&[KIND_STRUCT], name)
            .ok_or_else(|| format!("kernel BTF has no struct {name}"))?;
        let mut bits = 0u64;
        for member in members.split('.') {
            let (offset, inner) = self.member(id, member, DEPTH_MAX).ok_or_else(missing)?;
            bits += u64::from(offset);
            id = inner;
        }
        let bytes =
            bits.is_multiple_of(8).then_some(bits / 8).and_then(|bytes| i16::try_from(bytes).ok());
        bytes.ok_or_else(|| format!("offset of {members} in kernel struct {name} exceeds 16 bits"))
    }

    /// Offset in bits of a member, and its type. Members of anonymous unions and structs are found
    /// too.
    fn member(&self, id: u32, name: &str, depth: u32) -> Option<(u32, u32)> {
        let outer = self.get(self.resolve(id)?)?;
        if !matches!(outer.kind, KIND_STRUCT | KIND_UNION) || depth == 0 {
            return None;
        }
        for at in (0..outer.count).map(|i| outer.at + 12 * i) {
            let (named, inner) = (word(&self.bytes, at)?, word(&self.bytes, at + 4)?);
            let offset = word(&self.bytes, at + 8)?;
            let offset = if outer.has_bit_fields { offset & 0xff_ffff } else { offset };
            if self.is_named(named, name) {
                return Some((offset, inner));
            }
            if self.is_named(named, "")
                && let Some((further, id)) = self.member(inner, name, depth - 1)
            {
                return Some((offset.checked_add(further)?, id));
            }
        }
        None
    }

    /// Resolves typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<u32> {
        for _ in 0..DEPTH_MAX {
            let found = self.get(id)?;
            if found.kind != KIND_TYPEDEF {
                return Some(id);
            }
            id = word(&self.bytes, found.at - 4)?;
        }
        None
    }

    /// Value of an enumerator of any enumeration.
    pub fn enumerator(&self, name: &str) -> Option<u32> {
        (1..self.types.len() as u32).filter_map(|id| self.get(id)).find_map(|found| {
            if found.kind != KIND_ENUM {
                return None;
            }
            let places = (0..found.count).map(|i| found.at + 8 * i);
            let mut named =
                places.filter(|&at| word(&self.bytes, at).is_some_and(|n| self.is_named(n, name)));
            word(&self.bytes, named.next()? + 4)
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn read_type(bytes: &[u8], at: usize) -> Option<BtfType> {
    let info = word(bytes, at + 4)?;
    word(bytes, at + 8)?;
    Some(BtfType {
        name: word(bytes, at)?,
        kind: info >> 24 & 0x1f,
        count: (info & 0xffff) as usize,
        has_bit_fields: info >> 31 != 0,
        at: at + 12,
    })
}

/// Bytes after the common part of a type record; `None` for an unknown kind.
fn type_tail_bytes(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // Integer, variable, declaration tag.
        1 | KIND_VAR | 17 => 4,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * count,
        KIND_ENUM | KIND_FUNC_PROTO => 8 * count,
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct s { int a; union { struct { long b; }; }; t n; };`,
    /// `typedef struct u { int x; int y; } t`, `enum { E = 7 }`, `typedef … btf_trace_p`, a
    /// variable `v` and a function `f`.
    fn example() -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut name = |text: &str| {
            let at = strings.len() as u32;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let of = |kind: u32, count: u32| kind << 24 | count;
        let [s, a, b, n, u, x, y, t, e, p, v, int, f] =
            ["s", "a", "b", "n", "u", "x", "y", "t", "E", "btf_trace_p", "v", "int", "f"]
                .map(&mut name);
        let words = [
            vec![int, of(1, 0), 4, 32],                                    // 1
            vec![0, of(KIND_STRUCT, 1), 8, b, 1, 64],                      // 2
            vec![0, of(KIND_UNION, 1), 8, 0, 2, 0],                        // 3
            vec![u, of(KIND_STRUCT, 2), 8, x, 1, 0, y, 1, 32],             // 4
            vec![t, of(KIND_TYPEDEF, 0), 4],                               // 5
            vec![s, of(KIND_STRUCT, 3), 32, a, 1, 0, 0, 3, 64, n, 5, 256], // 6
            vec![0, of(KIND_ENUM, 1), 4, e, 7],                            // 7
            vec![p, of(KIND_TYPEDEF, 0), 1],                               // 8
            vec![v, of(KIND_VAR, 0), 6, 1],                                // 9
            vec![f, of(KIND_FUNC, 0), 0],                                  // 10
        ];
        let types: Vec<u8> = words.concat().iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut out = MAGIC.to_le_bytes().to_vec();
        out.extend([1, 0]);
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            out.extend(word.to_le_bytes());
        }
        out.extend(types);
        out.extend(strings);
        out
    }

    #[track_caller]
    fn check(name: &str, members: &str, expected: Result<i16, &str>) {
        let btf = Btf::parse(example()).unwrap();
        assert_eq!(btf.offset(name, members), expected.map_err(str::to_owned));
    }

    #[test]
    fn members_are_found() {
        check("s", "a", Ok(0));
        check("s", "b", Ok(16));
        check("s", "n.y", Ok(36));
        check("s", "c", Err("kernel struct s has no member c"));
        check("s", "a.x", Err("kernel struct s has no member a.x"));
        check("q", "a", Err("kernel BTF has no struct q"));
    }

    #[test]
    fn other_types_are_found() {
        let btf = Btf::parse(example()).unwrap();
        assert_eq!((btf.tracepoint("p"), btf.variable("v")), (Ok(8), Ok(9)));
        assert_eq!((btf.enumerator("E"), btf.enumerator("F")), (Some(7), None));
        assert_eq!((btf.function("f"), btf.size("s"), btf.size("u")), (Ok(10), Ok(32), Ok(8)));
        assert_eq!(btf.function("s"), Err("kernel BTF has no function s".to_owned()));
        assert_eq!(btf.size("f"), Err("kernel BTF has no struct f".to_owned()));
        assert_eq!(btf.tracepoint("q"), Err("kernel has no tracepoint q".to_owned()));
    }

    #[test]
    fn mutated_btf_does_not_panic() {
        let whole = example();
        let ask = |bytes: Vec<u8>| {
            if let Ok(btf) = Btf::parse(bytes) {
                let _ = (btf.offset("s", "n.y"), btf.tracepoint("p"), btf.enumerator("E"));
            }
        };
        for at in 0..whole.len() {
            assert!(Btf::parse(whole[..at].to_vec()).is_err(), "cut at {at}");
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                ask(changed);
            }
        }
    }
}
