package topdeck

// Layout of the metrics file, version 1: docs/formats/shm.md of topdeck. The test of the layout
// compares these numbers with that page.

const (
	magic   = 0x314b434544504f54 // "TOPDECK1"
	version = 1

	headerBytes = 4096
	laneBytes   = 32
	lanesMax    = 256
	entryBytes  = 64
	entriesMax  = 16_384
	stringMax   = 4096
	labelsMax   = 64
	tagsMax     = 4
	// Series per name; further ones are counted together, with the label overflow="true".
	seriesPerNameMax = 1000

	registryOffset = headerBytes + lanesMax*laneBytes
	stringsOffset  = registryOffset + entriesMax*entryBytes
	stringsBytes   = 4 << 20
	lanesOffset    = (stringsOffset + stringsBytes + 0xffff) &^ 0xffff
	laneStride     = 64 << 20
	smallBytes     = 2 << 20
	page           = 4096
)

// Words of the header.
const (
	headerMagic             = 0
	headerVersion           = 1
	headerID                = 4
	headerBoot              = 6
	headerPID               = 8
	headerPIDNamespace      = 9
	headerStartTicks        = 10
	headerUID               = 11
	headerCreated           = 12
	headerCreatedUnix       = 13
	headerState             = 14
	headerEnded             = 15
	headerRegistry          = 16
	headerRegistryCapacity  = 17
	headerRegistryCount     = 18
	headerStrings           = 19
	headerStringsCapacity   = 20
	headerStringsUsed       = 21
	headerLanes             = 22
	headerLaneStride        = 23
	headerLaneCapacity      = 24
	headerLanesUsed         = 25
	headerSmallCapacity     = 26
	headerProgram           = 27
	headerCommand           = 28
	headerRejectedSeries    = 29
	headerSharedLaneThreads = 30
	headerLostValues        = 31
	headerWords             = 32
)

const (
	stateLive     = 1
	stateExited   = 2
	stateReplaced = 3
)

type kind uint64

const (
	kindCounter    kind = 1
	kindUpDown     kind = 2
	kindGauge      kind = 3
	kindFloatGauge kind = 4
	kindText       kind = 5
	kindHistogram  kind = 6
	kindInFlight   kind = 7
	kindHeartbeat  kind = 8
)

// Small cells of a histogram, in bytes.
const (
	histBegun   = 0
	histZero    = 8
	histSumLow  = 16
	histSumHigh = 24
	histNotMin  = 32
	histMax     = 40
	histTouched = 48

	scale        = 5
	bucketCount  = 2049
	bucketGroup  = 1 << scale
	bucketsBytes = (bucketCount*8 + 63) &^ 63
)

// Small cells of operations in flight, and their slots, in bytes.
const (
	flightStarted   = 0
	flightEnded     = 8
	flightUntracked = 16
	flightSlots     = 24
	flightHint      = 32

	slotStart = 0
	slotTags  = 16
	slotBytes = 32
	slotsMax  = 16_384
	filling   = 1
)

// Cells of a text and of a heartbeat, in bytes.
const (
	textBytes      = 512
	textBuffer0    = 8
	textBuffer1    = 256
	textMax        = 240
	heartbeatBytes = 16
)

// sizes returns size and alignment of the small cells of a kind, and the size of its large cells.
func (k kind) sizes() (small, align, large uintptr) {
	switch k {
	case kindText:
		return textBytes, 8, 0
	case kindHeartbeat:
		return heartbeatBytes, 8, 0
	case kindHistogram:
		return 64, 64, bucketsBytes
	case kindInFlight:
		return 64, 64, slotsMax * slotBytes
	default:
		return 8, 8, 0
	}
}
