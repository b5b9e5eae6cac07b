package cpuid

// remembered asks another function once for each input.
type remembered struct {
	of   Function
	seen map[In]Out
}

func newRemembered(of Function) Function {
	return &remembered{of: of, seen: make(map[In]Out)}
}

// Query implements Function.Query.
func (r *remembered) Query(in In) Out {
	out, ok := r.seen[in]
	if !ok {
		out = r.of.Query(in)
		r.seen[in] = out
	}
	return out
}

// hasExtendedState returns whether the processor describes the extended state i. It answers zeros
// for any other (Intel SDM, volume 2, CPUID, leaf 0DH).
func (fs FeatureSet) hasExtendedState(i uint32) bool {
	if i < 2 {
		return true
	}
	low, _, _, high := fs.query(xSaveInfo)
	_, _, lowSupervisor, highSupervisor := fs.query(xSaveInfoSub)
	states := uint64(high|highSupervisor)<<32 | uint64(low|lowSupervisor)
	return states&(1<<i) != 0
}
