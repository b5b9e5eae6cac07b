package memxattr

// All returns a copy of all attributes.
func (x *SimpleExtendedAttributes) All() map[string]string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(x.xattrs) == 0 {
		return nil
	}
	all := make(map[string]string, len(x.xattrs))
	for name, value := range x.xattrs {
		all[name] = value
	}
	return all
}
