package boot

import (
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/specutils"
)

// seccompOptions returns the options with which installSeccompFilters will install the filters if
// nothing changes until then.
func (l *Loader) seccompOptions() filter.Options {
	hostnet := l.root.conf.Network == config.NetworkHost
	return filter.Options{
		Platform:              l.k.Platform.SeccompInfo(),
		HostNetwork:           hostnet,
		HostNetworkRawSockets: hostnet && l.root.conf.EnableRaw,
		HostFilesystem:        l.root.conf.DirectFS,
		ProfileEnable:         l.root.conf.ProfileEnable,
		NVProxy:               specutils.NVProxyEnabled(l.root.spec, l.root.conf),
		TPUProxy:              specutils.TPUProxyIsEnabled(l.root.spec, l.root.conf),
		ControllerFD:          uint32(l.ctrl.srv.FD()),
	}
}
