package topdeck

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The numbers of the layout are those of the page of the format.
func TestLayoutEqualsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/formats/shm.md")
	if err != nil {
		t.Skip("the page of the format is not beside the package:", err)
	}
	sections := map[string]map[string]int{}
	heading := ""
	row := regexp.MustCompile(`^\| (\d+) \| (\d+) \| (\w+) \|(?: ([\d,]+))?`)
	numbers := map[string]int{}
	for _, line := range strings.Split(string(page), "\n") {
		if strings.HasPrefix(line, "#") {
			heading = strings.TrimLeft(line, "# ")
			sections[heading] = map[string]int{}
		}
		if found := row.FindStringSubmatch(line); found != nil {
			sections[heading][found[3]], _ = strconv.Atoi(found[1])
			number, _ := strconv.Atoi(strings.ReplaceAll(found[4], ",", ""))
			numbers[found[3]] = number
		}
	}
	for _, test := range []struct {
		section, field string
		offset         int
	}{
		{"Header", "magic", headerMagic * 8},
		{"Header", "id_low", headerID * 8},
		{"Header", "boot_low", headerBoot * 8},
		{"Header", "pid", headerPID * 8},
		{"Header", "pid_namespace", headerPIDNamespace * 8},
		{"Header", "start_ticks", headerStartTicks * 8},
		{"Header", "uid", headerUID * 8},
		{"Header", "created", headerCreated * 8},
		{"Header", "created_unix", headerCreatedUnix * 8},
		{"Header", "state", headerState * 8},
		{"Header", "ended", headerEnded * 8},
		{"Header", "registry_count", headerRegistryCount * 8},
		{"Header", "strings_used", headerStringsUsed * 8},
		{"Header", "lanes_used", headerLanesUsed * 8},
		{"Header", "program", headerProgram * 8},
		{"Header", "command", headerCommand * 8},
		{"Header", "rejected_series", headerRejectedSeries * 8},
		{"Header", "shared_lane_threads", headerSharedLaneThreads * 8},
		{"Header", "lost_values", headerLostValues * 8},
		{"Histogram", "begun", histBegun},
		{"Histogram", "zero", histZero},
		{"Histogram", "sum_low", histSumLow},
		{"Histogram", "sum_high", histSumHigh},
		{"Histogram", "not_min", histNotMin},
		{"Histogram", "max", histMax},
		{"Histogram", "touched", histTouched},
		{"In flight", "started", flightStarted},
		{"In flight", "ended", flightEnded},
		{"In flight", "untracked", flightUntracked},
		{"In flight", "slots", flightSlots},
		{"In flight", "hint", flightHint},
		{"Slot", "start", slotStart},
		{"Slot", "tags_1", slotTags},
		{"Text", "length_0", textBuffer0},
		{"Text", "length_1", textBuffer1},
	} {
		if found, ok := sections[test.section][test.field]; !ok || found != test.offset {
			t.Errorf("%s of %s: page %d, code %d", test.field, test.section, found, test.offset)
		}
	}
	for name, number := range map[string]int{
		"version": version, "registry": registryOffset, "registry_capacity": entriesMax,
		"strings": stringsOffset, "strings_capacity": stringsBytes, "lanes": lanesOffset,
		"lane_stride": laneStride, "lane_capacity": lanesMax, "small_capacity": smallBytes,
	} {
		if numbers[name] != number {
			t.Errorf("%s: page %d, code %d", name, numbers[name], number)
		}
	}
}
