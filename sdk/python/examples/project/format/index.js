module.exports = (amount) => `${amount} euros`;
