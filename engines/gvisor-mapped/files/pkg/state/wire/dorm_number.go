package wire

// numberReader reads a whole number at a time. It reads nothing and returns false if that is not
// possible.
type numberReader interface {
	ReadNumber() (uint64, bool)
}
