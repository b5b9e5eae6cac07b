package systrap

import "time"

// quietest is the highest number of times that the recording period is doubled, to 205 ms.
const quietest = 9

// quiet is how often the recording period is doubled, and recorded how many latencies the buckets
// held after the last look. Both are used by controlFastPath only.
var (
	quiet    uint
	recorded uint64
)

// total returns how many latencies are recorded in b.
func (b *latencyBuckets) total() uint64 {
	var n uint64
	for i := range b {
		n += b[i].Load()
	}
	return n
}

// sleepRecordingPeriod sleeps for a recording period, which grows while nothing is recorded: an
// idle sandbox need not wake to judge latencies.
func sleepRecordingPeriod() {
	time.Sleep(recordingPeriod << quiet)
	if latencies.stubBound.total()+latencies.sentryBound.total() != recorded {
		quiet = 0
	} else if quiet < quietest {
		quiet++
	}
}

// rememberRecorded notes what is in the buckets after the state function has looked at them.
func rememberRecorded() {
	recorded = latencies.stubBound.total() + latencies.sentryBound.total()
}
