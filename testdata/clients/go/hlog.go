package main

import (
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// hlog writes a log of four intervals of a second, for somebody else to send.
func hlog(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	writer := hdrhistogram.NewHistogramLogWriter(file)
	// Whole seconds, and over before it is read.
	start := time.Now().Add(-time.Minute).Truncate(time.Second).UnixMilli()
	if err := writer.OutputLogFormatVersion(); err != nil {
		return err
	}
	if err := writer.OutputStartTime(start); err != nil {
		return err
	}
	if err := writer.OutputLegend(); err != nil {
		return err
	}
	sent := whole(4, 8_000)
	for i := 0; i < 4; i++ {
		interval := hdrhistogram.New(1, 3_600_000_000, 3)
		interval.SetStartTimeMs(start + int64(i)*1_000)
		interval.SetEndTimeMs(start + int64(i+1)*1_000)
		for _, value := range sent[i*2_000 : (i+1)*2_000] {
			if err := interval.RecordValue(int64(value) * 1_000); err != nil {
				return err
			}
		}
		if err := writer.OutputIntervalHistogram(interval); err != nil {
			return err
		}
	}
	if err := file.Close(); err != nil {
		return err
	}
	client := named("hdrhistogram-go", "github.com/HdrHistogram/hdrhistogram-go")
	pauses := sent.distribution(client, "interval log, by curl", "hdr_pause", 1_000)
	pauses.Within = []string{"sum", "min", "max"}
	pauses.print()
	return nil
}
