"""The exceptions of Maskwright (`maskwright.base.errors` describes them)."""

from maskwright.base.errors import CheckpointError as CheckpointError
from maskwright.base.errors import ConfigError as ConfigError
from maskwright.base.errors import DataError as DataError
from maskwright.base.errors import IncompatibleError as IncompatibleError
from maskwright.base.errors import MaskwrightError as MaskwrightError
from maskwright.base.errors import OutputError as OutputError
from maskwright.base.errors import ResourceError as ResourceError
from maskwright.base.errors import StoppedError as StoppedError
from maskwright.base.errors import StorageError as StorageError
from maskwright.base.errors import TokenizerError as TokenizerError
from maskwright.base.errors import UsageError as UsageError
