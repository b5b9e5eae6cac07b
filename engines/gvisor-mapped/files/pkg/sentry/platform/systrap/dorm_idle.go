package systrap

import (
	"time"

	"gvisor.dev/gvisor/pkg/atomicbitops"
)

// quietest is how often the recording period is doubled, to 13 ms, before controlFastPath waits for
// the next switch between sentry and stub.
const quietest = 5

// sustainedPeriods is how many recording periods with enough switches pass before the sentry polls
// for stubs, at least 13 ms. Until then, polling takes the CPU from the processes of short commands:
// with two CPUs, an exec of true takes a quarter less time without it. Where many system calls
// follow each other, polling saves a third.
const sustainedPeriods = 32

var (
	// quiet is how often the recording period is doubled, and recorded how many latencies the
	// buckets held after the last look. Both are used by controlFastPath only.
	quiet    uint
	recorded uint64

	// isWaiting is 1 while controlFastPath waits for woken.
	isWaiting atomicbitops.Uint32
	woken     = make(chan struct{}, 1)
)

// total returns how many latencies are recorded in b.
func (b *latencyBuckets) total() uint64 {
	var n uint64
	for i := range b {
		n += b[i].Load()
	}
	return n
}

// hasRecorded returns whether a latency was recorded since the last look.
func hasRecorded() bool {
	return latencies.stubBound.total()+latencies.sentryBound.total() != recorded
}

// sleepRecordingPeriod sleeps for a recording period, which grows while nothing is recorded, and
// then until something is: an idle sandbox need not wake to judge latencies.
func sleepRecordingPeriod() {
	if quiet < quietest {
		time.Sleep(recordingPeriod << quiet)
	} else {
		isWaiting.Store(1)
		// A latency may have been recorded just before.
		if !hasRecorded() {
			<-woken
			stopSentryPolling()
		}
		isWaiting.Store(0)
		time.Sleep(recordingPeriod)
	}
	if hasRecorded() {
		quiet = 0
	} else if quiet < quietest {
		quiet++
	}
}

// rememberRecorded notes what is in the buckets after the state function has looked at them.
func rememberRecorded() {
	recorded = latencies.stubBound.total() + latencies.sentryBound.total()
}

// wakeController ends the wait of controlFastPath. It is called after each switch.
func wakeController() {
	if isWaiting.Load() != 0 && isWaiting.CompareAndSwap(1, 0) {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
}

// stopSentryPolling makes the sentry begin again as in a new sandbox: what follows a pause may be as
// short as what came before it was long. It is called by controlFastPath only.
func stopSentryPolling() {
	fastpath.sentryFastPathEnabled.Store(false)
	fastpath.sentryFPBackoff = sustainedPeriods
	fastpath.consecutiveSentryFPFailures = 0
	if fastpath.stubFastPathEnabled.Load() {
		fastpath.curState = sentryOffStubOn
	} else {
		fastpath.curState = sentryOffStubOff
	}
}
