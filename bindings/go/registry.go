package topdeck

import (
	"fmt"
	"strings"
)

// registry holds the series and strings of the file. The caller has the lock of the file.
type registry struct {
	strings     map[string]uint64
	stringsUsed uintptr
	series      map[string]registryEntry
	perName     map[string]int
	numbers     map[uint64]uint64
	count       uintptr
	smallUsed   uintptr
	largeUsed   uintptr
	// Reserved bytes of the registry and of the strings.
	entriesReserved, stringsReserved uintptr
}

type registryEntry struct {
	cells cellReference
	kind  kind
	unit  string
}

// Space of entries and strings is reserved in steps of this size.
const reserveStep = 16 << 10

func newRegistry() registry {
	return registry{
		strings:   map[string]uint64{},
		series:    map[string]registryEntry{},
		perName:   map[string]int{},
		numbers:   map[uint64]uint64{},
		largeUsed: smallBytes,
	}
}

// findOrAdd returns the cells of a series, which is added if it is new.
func (f *file) findOrAdd(s *series) (cellReference, error) {
	r := &f.registry
	if found, ok := r.series[s.key()]; ok {
		if found.kind != s.kind || found.unit != s.Unit {
			return unregistered, fmt.Errorf(
				"cannot register metric %q: it exists with another kind or unit", s.Name)
		}
		return found.cells, nil
	}
	isOverflow := len(s.Labels) == 1 && s.Labels[0] == Label{"overflow", "true"}
	if r.perName[s.Name] >= seriesPerNameMax && !isOverflow {
		f.addToHeader(headerRejectedSeries, 1)
		combined := *s
		combined.Labels = []Label{{"overflow", "true"}}
		return f.findOrAdd(&combined)
	}
	return f.add(s)
}

func (f *file) add(s *series) (cellReference, error) {
	r := &f.registry
	smallSize, align, largeSize := s.kind.sizes()
	small := (r.smallUsed + align - 1) &^ (align - 1)
	large := r.largeUsed
	full := func(limit string) (cellReference, error) {
		f.addToHeader(headerRejectedSeries, 1)
		return unregistered, fmt.Errorf(
			"cannot register metric %q: metric table full, limit %s", s.Name, limit)
	}
	switch {
	case r.count >= entriesMax:
		return full("16,384 series")
	case small+smallSize > smallBytes:
		return full("2 MiB of cells")
	case large+largeSize > laneStride:
		return full("62 MiB of buckets, those of 3,900 histograms")
	}
	texts := []string{s.Name, string(encodeLabels(s.Labels)), s.Unit, s.Help,
		strings.Join(s.tags, "\x00")}
	var words [5]uint64
	for at, text := range texts {
		word, err := f.intern(text)
		if err == errStringsFull {
			return full("4 MiB of names and labels")
		}
		if err != nil {
			return unregistered, err
		}
		words[at] = word
	}
	if end := (r.count + 1) * entryBytes; end > r.entriesReserved {
		if err := f.reserve(registryOffset+r.entriesReserved, reserveStep); err != nil {
			return unregistered, err
		}
		r.entriesReserved += reserveStep
	}
	if err := f.reserveSmall(0, small+smallSize); err != nil {
		return unregistered, err
	}
	cells := cellReference{small, large}
	link := uint64(0)
	if s.Related != nil {
		if number, ok := r.numbers[s.Related.reference().word()]; ok {
			link = number + 1
		}
	}
	parameter := s.parameter
	if s.kind == kindInFlight {
		parameter = words[4]
	}
	entry := [8]uint64{uint64(s.kind) | uint64(s.Role)<<8, words[0], words[1], words[2], words[3],
		cells.word(), link, parameter}
	at := registryOffset + r.count*entryBytes
	for word := uintptr(1); word < 8; word++ {
		f.store(at+word*8, entry[word])
	}
	// A reader that sees the first word sees the rest, and the strings.
	f.store(at, entry[0])
	f.store(headerRegistryCount*8, uint64(r.count+1))
	r.series[s.key()] = registryEntry{cells, s.kind, s.Unit}
	r.perName[s.Name]++
	r.numbers[cells.word()] = uint64(r.count)
	r.count++
	r.smallUsed = small + smallSize
	r.largeUsed = large + largeSize
	return cells, nil
}

var errStringsFull = fmt.Errorf("cannot add a string: limit of 4 MiB of names and labels reached")

// intern returns the position of a string in words from the start of the strings; 0 is the empty
// one.
func (f *file) intern(text string) (uint64, error) {
	r := &f.registry
	if text == "" {
		return 0, nil
	}
	if at, ok := r.strings[text]; ok {
		return at, nil
	}
	at := max(r.stringsUsed, 8)
	end := at + 8 + (uintptr(len(text))+7)&^7
	if end > stringsBytes {
		return 0, errStringsFull
	}
	if end > r.stringsReserved {
		bytes := (end - r.stringsReserved + reserveStep - 1) / reserveStep * reserveStep
		if err := f.reserve(stringsOffset+r.stringsReserved, bytes); err != nil {
			return 0, err
		}
		r.stringsReserved += bytes
	}
	f.store(stringsOffset+at, uint64(len(text)))
	for number, word := range toWords(text) {
		f.store(stringsOffset+at+8+uintptr(number)*8, word)
	}
	f.store(headerStringsUsed*8, uint64(end))
	r.stringsUsed = end
	r.strings[text] = uint64(at / 8)
	return uint64(at / 8), nil
}

// toWords returns the bytes of a text as words, the first byte least significant, padded with
// zeros.
func toWords(text string) []uint64 {
	words := make([]uint64, (len(text)+7)/8)
	for at := range len(text) {
		words[at/8] |= uint64(text[at]) << (8 * (at % 8))
	}
	return words
}
