package topdeck

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Role is the meaning of a metric. A role other than RoleOther, RoleTiming and RoleCapacity is
// relative to another metric: Description.Related.
type Role uint8

// Roles of metrics.
const (
	RoleOther    Role = 0
	RoleTiming   Role = 1
	RoleCapacity Role = 2 // of a resource
	RoleUsage    Role = 3 // part of a capacity
	RoleHit      Role = 4 // of a cache, whose size is related
	RoleMiss     Role = 5
	RoleSize     Role = 6
	RoleQueue    Role = 7 // waiting for a capacity
	RoleError    Role = 8 // of the related operation
	RoleSubcalls Role = 9 // made by the related operation
)

// Label is a name and a value.
type Label struct{ Name, Value string }

// Description of a metric. All fields except the name may be empty.
type Description struct {
	// Name of 1 to 4,096 bytes.
	Name string
	// Unit in UCUM: "ns", "By", "1".
	Unit string
	// Help text.
	Help string
	// Labels in any order, with unique names.
	Labels []Label
	// Role of the metric.
	Role Role
	// Related metric of the role, such as the capacity of a usage.
	Related Metric
}

// Metric is any metric of this package.
type Metric interface {
	// Err returns why the metric records nothing, or nil.
	Err() error
	reference() cellReference
}

// cellReference is the offset of the cells of a metric in each lane. Small cells beyond the end of
// every lane belong to a metric that was not registered.
type cellReference struct{ small, large uintptr }

func (c cellReference) word() uint64 { return uint64(c.small) | uint64(c.large)<<32 }

var unregistered = cellReference{small: smallBytes}

// registered is what all metrics have in common.
type registered struct {
	cellReference
	err error
}

// Err returns why the metric records nothing, or nil.
func (r *registered) Err() error { return r.err }

func (r *registered) reference() cellReference { return r.cellReference }

// series is a checked description.
type series struct {
	Description
	kind      kind
	tags      []string
	parameter uint64
}

func (s *series) key() string { return s.Name + "\x00" + string(encodeLabels(s.Labels)) }

func encodeLabels(labels []Label) []byte {
	var text []byte
	for _, label := range labels {
		for _, part := range []string{label.Name, label.Value} {
			text = binary.LittleEndian.AppendUint16(text, uint16(len(part)))
			text = append(text, part...)
		}
	}
	return text
}

// check sorts the labels and returns what is invalid.
func (s *series) check() error {
	invalid := func(reason string) error {
		return fmt.Errorf("invalid metric %q: %s", s.Name, reason)
	}
	if s.Name == "" {
		return invalid("metric name is empty")
	}
	s.Labels = slices.Clone(s.Labels)
	slices.SortFunc(s.Labels, func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
	bytes := 0
	for at, label := range s.Labels {
		bytes += 4 + len(label.Name) + len(label.Value)
		if label.Name == "" {
			return invalid("label name is empty")
		}
		if at > 0 && s.Labels[at-1].Name == label.Name {
			return invalid("duplicate label")
		}
	}
	if max(len(s.Name), len(s.Unit), len(s.Help), bytes) > stringMax {
		return invalid("name, unit, help or labels exceed 4,096 bytes")
	}
	if len(s.Labels) > labelsMax {
		return invalid("more than 64 labels")
	}
	for _, tag := range s.tags {
		if tag == "" || strings.ContainsRune(tag, 0) || len(tag) > stringMax {
			return invalid("a tag name is empty, has a zero byte, or exceeds 4,096 bytes")
		}
	}
	if len(s.tags) > tagsMax {
		return invalid("more than four tags")
	}
	for _, text := range append([]string{s.Name, s.Unit, s.Help}, s.tags...) {
		if strings.ToValidUTF8(text, "") != text {
			return invalid("text is not UTF-8")
		}
	}
	for _, label := range s.Labels {
		if strings.ToValidUTF8(label.Name+label.Value, "") != label.Name+label.Value {
			return invalid("label is not UTF-8")
		}
	}
	if s.Role > RoleSubcalls {
		return invalid(fmt.Sprintf("invalid role %d", s.Role))
	}
	return nil
}
